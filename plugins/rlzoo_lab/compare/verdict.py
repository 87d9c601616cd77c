"""A comparison in sentences: is the method better, do these runs differ, and which caveats
apply."""

from collections.abc import Sequence

from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison, Pair
from rlzoo_lab.data.comparable import ComparedRow
from rlzoo_lab.view.numbers import bracket, chance, signed, three_decimals


def difference(d: stats.Contrast) -> str:
    """`+0.120 [.050, .190]`"""
    mean = signed(d.mean)
    return f"{mean} {bracket(d.interval)}" if d.interval else mean


def verdict(c: Comparison) -> list[str]:
    """A sentence for each pair over seeds, one over prompts, then one for each caveat."""
    beware = _beware(c)
    if len(c.rows) < 2:
        return ["There is only one row, so there is nothing to compare.", *beware]
    if not c.pairs:
        return ["No two rows can be compared.", *beware]
    sentences = [*_of_methods(c), _of_runs(c), *beware]
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


def _of_methods(c: Comparison) -> list[str]:
    """A line for each pair of the verdict: those with a claim first. If the best row is not the
    table's reference, one more names the other rows that differ from that reference."""
    anchor, pairs = anchored(c)
    pairs.sort(key=lambda p: not p.claimed)
    lines = [_of_pair(c, p) for p in pairs]
    others = [row for row in c.rows if anchor not in (row, c.reference)]
    against = [p for row in others if (p := c.pair(row, c.reference)) and p.claimed]
    for rows, how in (
        ([p.a.label for p in against if p.contrast.mean > 0], "above"),
        ([p.a.label for p in against if p.contrast.mean < 0], "below"),
    ):
        if rows:
            score = "score" if len(rows) > 1 else "scores"
            lines.append(f"{_listed(rows)} also {score} {how} the reference {c.reference.label}.")
    return [line for line in lines if line]


def _of_pair(c: Comparison, p: Pair) -> str:
    """Empty if a caveat has it: the row has failed runs or two modes, or the test is in doubt."""
    one, other, d = p.a.label, p.b.label, p.contrast
    if p.claimed:
        above, below = ("scores above", "scores below") if c.named else ("beats", "loses to")
        how = above if d.mean > 0 else below
        return (
            f"{one} {how} {other}: {difference(d)}, P(better) = {chance(p.improvement)}, at "
            f"{_seeds(d.n)}."
        )
    if p.shown or p.a.split or p.b.split:
        return ""
    if d.sd == 0 and d.mean == 0:
        return f"{one} and {other}: equal in every seed."
    if d.n < 2:
        needed = stats.seeds_to_show(len(c.rows), reference=c.chosen)
        return (
            f"One seed cannot distinguish {one} from {other} ({difference(d)}): {needed} can "
            f"detect a difference of {stats.LARGE:g} times the spread between seeds."
        )
    if not d.interval:
        return (
            f"{one} differs from {other} by the same amount in every seed ({difference(d)}); "
            "without variation over seeds, no test is possible."
        )
    least = c.shows(p)
    ends = " to ".join(map(three_decimals, least)) if least and least[1] > 0 else ""
    shows = f", which could have detected {ends}" if ends else ""
    return f"{one} is indistinguishable from {other}: {difference(d)} at {_seeds(d.n)}{shows}."


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
    return f"On these prompts, {'; '.join(parts)}. This does not hold for other seeds."


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
        "seeds are about normal. P(better) is the probability that a run of one row is better than "
        "a run of the other."
    )


def _seeds(n: int) -> str:
    return f"{n} seed{'s' * (n != 1)}"


def _range(scores: Sequence[float]) -> str:
    low, high = three_decimals(min(scores)), three_decimals(max(scores))
    return low if low == high else f"{low} to {high}"


def _listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
