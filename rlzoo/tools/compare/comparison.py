"""`rlzoo compare`: which configuration is better, by how much, and how sure that is.  No torch.

Every number comes from `rlzoo.stats`; docs/compare.md says why these.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo import stats
from rlzoo.errors import UsageError, nearest
from rlzoo.runs.metrics import REF_KL_PER_RESPONSE, REWARD
from rlzoo.runs.record import Record
from rlzoo.tools.compare.records import (
    ComparedRow,
    Gathered,
    as_typed,
    check_comparable,
    gather,
    label,
    make_rows,
)


@dataclass
class Pair:
    """Two rows on the seeds they share; the difference is a - b."""

    a: ComparedRow
    b: ComparedRow
    paired: stats.Paired
    improvement: float
    p: float = 1.0  # corrected by Holm's method over the family

    @property
    def shown(self) -> bool:
        return self.p <= stats.ALPHA

    def turned(self) -> "Pair":
        """b - a."""
        d = self.paired
        interval = d.interval and stats.Interval(-d.interval.high, -d.interval.low)
        paired = stats.Paired(d.n, -d.mean, d.sd, d.p, interval)
        return Pair(self.b, self.a, paired, 1 - self.improvement, self.p)


@dataclass
class Comparison:
    """Rows and everything said about them."""

    title: str
    metric: str
    rows: list[ComparedRow]
    reference: ComparedRow
    chosen: bool  # the reference was named beforehand: only pairs with it are tested
    pairs: list[Pair]
    threshold: float | None
    notes: list[str]
    gathered: Gathered

    def pair(self, a: ComparedRow, b: ComparedRow) -> Pair | None:
        """a - b, if the two share a seed and are in the family."""
        for p in self.pairs:
            if p.a is a and p.b is b:
                return p
            if p.a is b and p.b is a:
                return p.turned()
        return None

    def all_failed(self) -> dict[str, str]:
        """Rows of which no run is left: label -> why the first of them failed."""
        failed = self.gathered.failed
        lost = sorted(set(failed) - {row.label for row in self.rows})
        return {label: next(iter(failed[label].values())) for label in lost}

    @property
    def best(self) -> ComparedRow:
        return max(self.rows, key=lambda r: stats.iqm(r.scores))


def compare(
    paths: Sequence[str | Path],
    *,
    reference: str | None = None,
    threshold: float | None = None,
    force: bool = False,
) -> Comparison:
    """Read runs and sweeps, and compare their rows. Raises UsageError, RunError."""
    gathered = gather(paths)
    if not gathered.records:
        raise UsageError(_nothing(gathered))
    named = check_comparable(gathered, force)
    rows, notes = make_rows(gathered)
    chosen = find_row(reference, [*rows, *gathered.lost()]) if reference else None
    absent = []
    if chosen and not chosen.runs:
        absent = [f"no run of the reference {chosen.label} is finished: all pairs are tested"]
        chosen = None
    base = chosen or rows[0]
    family = [(r, base) for r in rows if r is not base]
    if chosen is None:
        family = list(itertools.combinations(rows, 2))
    pairs = [pair for a, b in family if (pair := _pair(a, b))]
    for pair, corrected in zip(pairs, stats.holm([x.paired.p for x in pairs]), strict=True):
        pair.p = corrected
    first = gathered.records[0]
    metric, samples = first.summary["eval_metric"], first.recipe["eval.samples"]
    tasks = dict.fromkeys(r.summary["task"] for r in gathered.records)
    title = f"{', '.join(tasks)}: held-out {metric}, {samples} samples a run"
    if named:
        title += f"; NOT ON ONE SCALE: {'; '.join(named)}"
    if threshold is None:
        threshold = default_threshold(rows)
    notes = [*absent, *_notes(rows, pairs, gathered), *notes]
    return Comparison(
        title, metric, rows, base, chosen is not None, pairs, threshold, notes, gathered
    )


def _nothing(gathered: Gathered) -> str:
    reasons = [f"{name}: {why}" for name, why in gathered.skipped.items()]
    reasons += [
        f"{name} failed: {why}" for row in gathered.failed.values() for name, why in row.items()
    ]
    return f"no finished run to compare{': ' if reasons else ''}{'; '.join(reasons)}"


def find_row(name: str, rows: Sequence[Any]) -> Any:
    """By its label, its values (`0.95`, `estimator.lam=0.95`), or a piece of the label that no
    other has. Rows: anything with a label and values."""
    by = [
        [r for r in rows if r.label == name],
        [r for r in rows if " ".join(map(as_typed, r.values.values())) == name],
        [r for r in rows if " ".join(f"{k}={as_typed(v)}" for k, v in r.values.items()) == name],
        [r for r in rows if name in r.label],
    ]
    hit = next((rows for rows in by if len(rows) == 1), None)
    if hit is None:
        labels = [r.label for r in rows]
        raise UsageError(
            f"--reference: {name!r} names no single row{nearest(name, labels)} "
            f"(there are: {', '.join(labels)})"
        )
    return hit[0]


def _pair(a: ComparedRow, b: ComparedRow) -> Pair | None:
    seeds = [s for s in a.seeds if s in b.runs]
    if not seeds:
        return None
    paired = stats.paired([a.runs[s].score - b.runs[s].score for s in seeds])
    return Pair(a, b, paired, stats.improvement(a.scores, b.scores))


def default_threshold(rows: Sequence[ComparedRow]) -> float | None:
    """Halfway from where runs began to the best row's end, two figures; None without a rise."""
    before = [r.summary["eval_before"] for row in rows for r in row.runs.values()]
    start, best = sum(before) / len(before), max(stats.iqm(row.scores) for row in rows)
    return float(f"{(start + best) / 2:.2g}") if best > start else None


def _notes(rows: Sequence[ComparedRow], pairs: Sequence[Pair], gathered: Gathered) -> list[str]:
    notes = []
    few = [r for r in rows if len(r.seeds) < 2]
    if few:
        notes.append(f"one seed gives no interval: {_names(few)}")
    counts = sorted({p.paired.n for p in pairs if p.paired.interval is None and p.paired.n > 1})
    if counts:
        least = stats.smallest_p(counts[-1])
        notes.append(
            f"{_range(counts)} paired seeds give no 95 % interval of a "
            f"difference: the least p of their sign-flip test is {least:.3g}; "
            f"it takes {stats.seeds_needed()}"
        )
    narrow = [r for r in rows if 2 <= len(r.seeds) < 6]
    if narrow:
        notes.append(
            f"{_range(sorted({len(r.seeds) for r in narrow}))} seeds make a bootstrap interval too "
            "narrow: of 95 % intervals some 87 % cover with 4 seeds, 76 % with 3, 93 % with 8"
        )
    unpaired = [r for r in rows if not any(r in (p.a, p.b) for p in pairs)]
    if unpaired and len(rows) > 1:
        notes.append(f"no seed in common with another row: {_names(unpaired)}")
    tokens = [r.summary["tokens"] for row in rows for r in row.runs.values()]
    if max(tokens) > 1.1 * min(tokens):
        per_row = {row.label: tokens_spent(row) for row in rows}
        fewest, most = min(per_row, key=per_row.__getitem__), max(per_row, key=per_row.__getitem__)
        if per_row[most] > 1.1 * per_row[fewest]:
            notes.append(
                f"budgets differ in tokens: {most} generated {per_row[most] / per_row[fewest]:.1f} "
                f"times as many as {fewest}; train.tokens makes them equal"
            )
    for why in dict.fromkeys(gathered.skipped.values()):
        names = [name for name, reason in gathered.skipped.items() if reason == why]
        notes.append(f"skipped, {why}: {', '.join(names)}")
    for row, runs in gathered.failed.items():
        for name, why in runs.items():
            notes.append(f"failed: {name}{'' if row in name else f' ({row})'}: {why}")
    return notes


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _names(rows: Sequence[ComparedRow]) -> str:
    return ", ".join(r.label for r in rows)


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


@dataclass
class Reach:
    """When runs reached the threshold: the median run's, None where that one did not."""

    steps: float | None
    tokens: float | None
    reached: int
    of: int
    last_step: int
    last_tokens: float


def reach(row: ComparedRow, threshold: float) -> Reach:
    runs = [r.learning_curve for r in row.runs.values()]
    scores = [[e[2] for e in run] for run in runs]

    def times(axis: int) -> list[float | None]:
        xs = [[e[axis] for e in run] for run in runs]
        return [stats.reached(x, y, threshold) for x, y in zip(xs, scores, strict=True)]

    steps, tokens = times(0), times(1)
    return Reach(
        stats.censored_median(steps),
        stats.censored_median(tokens),
        sum(t is not None for t in steps),
        len(steps),
        max(int(run[-1][0]) for run in runs),
        max(run[-1][1] for run in runs),
    )


def area(row: ComparedRow) -> float:
    """IQM over seeds of the mean height of the held-out curve, over tokens."""
    curves = [r.learning_curve for r in row.runs.values()]
    return stats.iqm([stats.area([e[1] for e in c], [e[2] for e in c]) for c in curves])


def mean_of(row: ComparedRow, what: Callable[[Record], float | None]) -> float | None:
    values = [v for r in row.runs.values() if (v := what(r)) is not None]
    return _mean(values) if values else None


def tokens_spent(row: ComparedRow) -> float:
    """Generated by a run, mean over seeds."""
    return _mean([r.summary["tokens"] for r in row.runs.values()])


def kl_spent(row: ComparedRow) -> float | None:
    """Nats a response away from the reference at the end: mean of the last tenth of the steps."""
    return mean_of(row, lambda r: r.late(REF_KL_PER_RESPONSE))


def curve(row: ComparedRow, name: str = REWARD) -> list[float]:
    """A training metric per step, averaged over seeds, as far as all runs go."""
    runs = [r.series(name) for r in row.runs.values()]
    return [_mean(values) for values in zip(*runs, strict=False)]


@dataclass
class TwoWay:
    """Cells of `key`'s values (columns) by what else tells rows apart (rows); None: no such row."""

    key: str
    columns: list[str]
    rows: list[str]
    cells: dict[tuple[str, str], ComparedRow]


def two_way(c: Comparison, key: str) -> TwoWay:
    """Raises UsageError where no row has the key."""
    keys = list(dict.fromkeys(k for row in c.rows for k in row.values))
    hits = [k for k in keys if k in (key, f"{key}.name")]
    hits = hits or [k for k in keys if k.rpartition(".")[2] == key]
    if len(hits) != 1:
        raise UsageError(
            f"--by: rows do not differ in {key!r}{nearest(key, keys)} "
            f"(they differ in: {', '.join(keys) or 'nothing'})"
        )
    cells = {}
    for row in c.rows:
        rest = dict(row.values)
        column = as_typed(rest.pop(hits[0])) if hits[0] in rest else "-"
        cells[label(rest) or "all", column] = row
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    return TwoWay(hits[0], columns, rows, cells)
