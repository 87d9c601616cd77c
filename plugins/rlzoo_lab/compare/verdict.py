"""A comparison in sentences: is the method better, do these runs differ, and which caveats
apply."""

from collections.abc import Sequence

from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison, Pair
from rlzoo_lab.data.comparable import ComparedRow
from rlzoo_lab.view.numbers import bracket, chance, signed, three_decimals


def difference(d: stats.Paired | stats.Contrast) -> str:
    """`+0.120 [.050, .190]`"""
    mean = signed(d.mean)
    return f"{mean} {bracket(d.interval)}" if d.interval else mean


def verdict(c: Comparison) -> list[str]:
    """Two sentences, over seeds and over prompts, then one for each caveat."""
    beware = _beware(c)
    if len(c.rows) < 2:
        return ["There is only one row, so there is nothing to compare.", *beware]
    if not c.pairs:
        return ["No two rows can be compared.", *beware]
    sentences = [_of_methods(c), _of_runs(c), *beware]
    if c.named:
        sentences.insert(
            0,
            f"The rows are not on one scale ({'; '.join(c.named)}): a difference may come from "
            "the measurement, not from the method.",
        )
    return [sentence for sentence in sentences if sentence]


def anchored(c: Comparison) -> tuple[ComparedRow, list[Pair]]:
    """The row with which the verdict compares the others, and its pairs in the table's direction:
    each row minus the reference if one was named, otherwise the best row minus each other row."""
    anchor = c.reference if c.chosen else c.best
    others = [row for row in c.rows if row is not anchor]
    pairs = [c.pair(row, anchor) if c.chosen else c.pair(anchor, row) for row in others]
    return anchor, [p for p in pairs if p]


def _of_methods(c: Comparison) -> str:
    anchor, pairs = anchored(c)
    name, parts = anchor.label, []
    up = [p for p in pairs if p.claimed and p.contrast.mean > 0]
    down = [p for p in pairs if p.claimed and p.contrast.mean < 0]
    for found, one, more in (
        (up, *(("scores above", "score above") if c.named else ("beats", "beat"))),
        (down, *(("scores below", "score below") if c.named else ("loses to", "lose to"))),
    ):
        others = _listed([f"{_other(c, p)} ({_measured(p)})" for p in found])
        if found and c.chosen:  # each row, minus the reference
            parts.append(f"{others} {more if len(found) > 1 else one} {name}")
        elif found:  # the best row, minus each
            parts.append(f"{name} {one} {others}")
    rest = [p for p in pairs if not p.shown and not (p.a.split or p.b.split)]
    same = [p for p in rest if p.contrast.sd == 0 and p.contrast.mean == 0]
    few = [p for p in rest if p.contrast.n < 2]
    alike = [p for p in rest if p.contrast.n > 1 and not p.contrast.interval and p not in same]
    open_ = [p for p in rest if p not in same and p not in few and p not in alike]
    if same:
        parts.append(f"{name} and {_listed([_other(c, p) for p in same])}: equal in every seed")
    if alike:
        leads = _listed([f"{_other(c, p)} ({difference(p.contrast)})" for p in alike])
        parts.append(
            f"{name} differs from {leads} by the same amount in every seed; without variation "
            "over seeds, no test is possible"
        )
    if open_:
        what = _listed([f"{_other(c, p)} {_undecided(c, p)}" for p in open_], "; ")
        parts.append(f"{name} is indistinguishable from {what}")
    if few:
        leads = ", ".join(f"{_other(c, p)} ({difference(p.contrast)})" for p in few)
        needed = stats.seeds_to_show(len(c.rows), reference=c.chosen)
        parts.append(
            f"one seed cannot distinguish {name} from {leads}: {needed} can detect a difference "
            f"of {stats.LARGE:g} times the spread between seeds"
        )
    return f"{'; '.join(parts)}." if parts else ""


def _other(c: Comparison, p: Pair) -> str:
    """The row of an anchored pair that is not the anchor."""
    return (p.a if c.chosen else p.b).label


def _of_runs(c: Comparison) -> str:
    anchor, pairs = anchored(c)
    told = [p for p in pairs if p.runs and p.runs[1]]
    if not told:
        return ""
    sign = 1 if c.chosen else -1
    above = [_other(c, p) for p in told if p.runs_differ and sign * p.runs[0] > 0]  # type: ignore[index]
    below = [_other(c, p) for p in told if p.runs_differ and sign * p.runs[0] < 0]  # type: ignore[index]
    equal = [_other(c, p) for p in told if not p.runs_differ]
    parts = [
        f"the runs of {_listed(rows)} score {where} those of {anchor.label}"
        for rows, where in ((above, "above"), (below, "below"))
        if rows
    ]
    if equal:
        parts.append(
            f"the runs of {_listed(equal)} do not differ from those of {anchor.label} beyond the "
            "variation over prompts"
        )
    return f"Considering only these runs and their prompts, {'; '.join(parts)}."


def _beware(c: Comparison) -> list[str]:
    """Failed runs, bimodal rows, and claims that are invalid for either reason."""
    found = [f"No run of {name} finished ({why})." for name, why in c.all_failed().items()]
    for row in c.rows:
        leads = [
            f"{p.b.label} ({difference(p.contrast)} over {_seeds(p.contrast.n)})"
            for other in c.rows
            if (p := c.pair(row, other)) and p.shown and not p.claimed and p.contrast.mean > 0
        ]
        no_claim = f"; its lead over {_listed(leads)} is not a valid claim" if leads else ""
        if row.lost:
            why, of = next(iter(row.lost.values())), len(row.lost) + len(row.runs)
            found.append(
                f"{row.label} has {len(row.lost)} failed runs of {of} ({why}), so its results "
                f"cover only the remaining seeds{no_claim}."
            )
        if row.split:
            low, high = sides(row)
            found.append(
                f"{row.label} is bimodal: {len(low)} of {len(row.runs)} seeds end at "
                f"{_range(low)}, the others at {_range(high)}; their mean describes neither "
                f"group{no_claim if not row.lost else ''}."
            )
    for p in c.pairs:
        if p.shown and p.doubt:
            found.append(
                f"No claim: the difference between {p.a.label} and {p.b.label} "
                f"({difference(p.contrast)}) is not reliable at {_seeds(p.contrast.n)}: "
                f"{p.doubt}. A t test is wrong too often in this case; use more seeds."
            )
    return found


def sides(row: ComparedRow) -> tuple[list[float], list[float]]:
    """The scores of a bimodal row: the low ones and the high ones."""
    low = [row.runs[seed].score for seed in row.split]
    return low, [row.runs[seed].score for seed in row.seeds if seed not in row.split]


def method(c: Comparison) -> str:
    """How the verdict was computed, in one line."""
    n = len(c.pairs)
    if len(c.rows) == 2:
        how = "Welch's unpaired t test at 0.05" if c.pairs[0].unpaired else "Paired t test at 0.05"
    elif c.chosen:
        how = (
            f"Seed-and-row model, Dunnett's t test at 0.05 over the {n} pairs with "
            f"{c.reference.label}"
        )
    else:
        how = f"Seed-and-row model, Tukey's range test at 0.05 over all {n} pairs"
    return (
        f"{how}; intervals hold for all pairs together. The tests assume that differences over "
        "seeds are about normal. P = P(X > Y) is the probability that a run of one row is better "
        "than a run of the other. Results over prompts hold for these runs only, not for other "
        "seeds."
    )


def _measured(p: Pair) -> str:
    return f"P = {chance(p.improvement)}, {difference(p.contrast)}"


def _undecided(c: Comparison, p: Pair) -> str:
    least = c.shows(p)
    known = least is not None and least[1] > 0
    ends = [three_decimals(x) for x in least] if least else []
    shows = f"; {_seeds(p.contrast.n)} could have detected {' to '.join(ends)}" if known else ""
    return f"at {_seeds(p.contrast.n)} ({_measured(p)}{shows})"


def _seeds(n: int) -> str:
    return f"{n} seed{'s' * (n != 1)}"


def _range(scores: Sequence[float]) -> str:
    low, high = three_decimals(min(scores)), three_decimals(max(scores))
    return low if low == high else f"{low} to {high}"


def _listed(items: Sequence[str], comma: str = ", ") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{comma.join(items[:-1])} and {items[-1]}"
