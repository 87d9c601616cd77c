"""A comparison in sentences."""

from collections.abc import Sequence

from rlzoo import stats
from rlzoo.show.numbers import chance, difference, three_decimals
from rlzoo.tools.compare.comparison import Comparison, Pair, _range


def verdict(c: Comparison) -> list[str]:
    """Sentences: what is shown, and what could not have been."""
    if len(c.rows) < 2:
        return ["There is one row only, so nothing to compare it with."]
    if not c.pairs:
        return ["No two rows share a seed, so no difference can be tested."]
    anchor = c.reference if c.chosen else c.best
    mine = [p for r in c.rows if r is not anchor and (p := c.pair(anchor, r))]
    wins = [p for p in mine if p.shown and p.paired.mean > 0]
    losses = [p.turned() for p in mine if p.shown and p.paired.mean < 0]
    same = [p for p in mine if not p.shown and p.paired.sd == 0 and p.paired.mean == 0]
    open_ = [p for p in mine if not p.shown and p not in same]
    sentences = []
    if wins:
        sentences.append(f"{anchor.label} beats {_listed([_won(p) for p in wins])}.")
    for p in losses:
        sentences.append(f"{p.a.label} beats {_won(p)}.")
    if same:
        others = _listed([p.b.label for p in same])
        sentences.append(f"{anchor.label} and {others}: equal in every seed.")
    provable = [p for p in open_ if stats.smallest_p(p.paired.n) * len(c.pairs) <= stats.ALPHA]
    hopeless = [p for p in open_ if p not in provable]
    if provable:
        what = _listed([_undecided(p, len(c.pairs)) for p in provable], "; ")
        sentences.append(f"{anchor.label} is indistinguishable from {what}.")
    if hopeless:
        needed = stats.seeds_needed(len(c.pairs))
        n = _range(sorted({p.paired.n for p in hopeless}))
        among = f" among {len(c.pairs)} pairs" if len(c.pairs) > 1 else ""
        leads = ", ".join(map(_won, hopeless))
        fewer = (
            ""
            if c.chosen or len(c.pairs) < 2
            else ", fewer where one row is named as the reference before"
        )
        sentences.append(
            f"Too few seeds to tell {anchor.label} from {leads}: "
            f"{n} seed{'s' if n != '1' else ''} cannot show any difference{among}; "
            f"it takes {needed}{fewer}."
        )
    rest = [p if p.paired.mean > 0 else p.turned() for p in c.pairs if p.shown]
    rest = [p for p in rest if anchor not in (p.a, p.b)]
    if rest:
        winners: dict[str, list[str]] = {}
        for p in rest:
            winners.setdefault(p.a.label, []).append(p.b.label)
        sentences.append(
            "Besides, " + "; ".join(f"{w} beats {_listed(ls)}" for w, ls in winners.items()) + "."
        )
    return sentences


def method(c: Comparison) -> str:
    """How the verdict was reached, in a line."""
    over = f"Holm's correction over {len(c.pairs)} pair{'s' * (len(c.pairs) != 1)}"
    which = f" (those with {c.reference.label})" if c.chosen and len(c.pairs) > 1 else ""
    return (
        f"Sign-flip tests of paired differences at .05, {over}{which}; P = P(X > Y), the chance "
        "that a run of the one is better than a run of the other."
    )


def _won(p: Pair) -> str:
    return f"{p.b.label} ({_measured(p)})"


def _measured(p: Pair) -> str:
    return f"P = {chance(p.improvement)}, {difference(p.paired)}"


def _undecided(p: Pair, comparisons: int) -> str:
    least = stats.detectable(p.paired.sd, p.paired.n, comparisons)
    power = f"; {p.paired.n} seeds could have shown {three_decimals(least)}" if least else ""
    return f"{p.b.label} at {p.paired.n} seeds ({_measured(p)}{power})"


def _listed(items: Sequence[str], comma: str = ", ") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{comma.join(items[:-1])} and {items[-1]}"
