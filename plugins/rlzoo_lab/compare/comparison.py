"""`rlzoo compare`: which configuration is better, by how much, and with what confidence.  No torch.

Every number comes from `rlzoo_lab.stats`; docs/compare.md explains the methods.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rlzoo.errors import UsageError, nearest
from rlzoo_lab import stats
from rlzoo_lab.compare.measures import over_prompts, tokens_spent
from rlzoo_lab.data.comparable import (
    ComparedRow,
    Gathered,
    as_typed,
    check_comparable,
    gather,
    made_otherwise,
    make_rows,
    unrecorded,
)
from rlzoo_lab.data.record import TRAINING, Record
from rlzoo_lab.data.scores import rows_of_files

# Fewer seeds than ENOUGH do not show skewness: rows whose spreads differ more than UNLIKE times
# need a p of STRICT to differ there. With more seeds `stats.doubts` decides.
ENOUGH, UNLIKE, STRICT = 5, 5.0, 0.005

# Metrics between 0 and 1.
SHARES = ("accuracy", "answer_prob")

# Rows whose numbers of tokens differ by this factor are not on one scale.
DEARER = 1.5


@dataclass
class Pair:
    """Two rows on their common seeds; the difference is a - b.

    contrast: whether one method is better, over seeds; its p and interval hold for all pairs
        together. runs: whether these particular runs differ, over prompts; None if the folders do
        not record that. signs: the sign-flip test; p_signs: its p after Holm's correction.
    """

    a: ComparedRow
    b: ComparedRow
    contrast: stats.Contrast
    signs: stats.Paired
    improvement: float
    runs: tuple[float, stats.Interval | None] | None = None
    sampling: float | None = None  # share of the variance over seeds that held-out prompts make
    p_signs: float = 1.0
    unpaired: bool = False  # no seed is shared: Welch's test

    @property
    def shown(self) -> bool:
        return self.contrast.p <= stats.ALPHA

    @property
    def claimed(self) -> bool:
        """Significant, not in doubt, and the better row has neither failed runs nor two modes."""
        winner = self.a if self.contrast.mean > 0 else self.b
        return self.shown and not (winner.lost or winner.split or self.doubt)

    @cached_property
    def doubt(self) -> str:
        """Why the test is unreliable for the spreads of these rows; empty if it is reliable."""
        x, y = self.a.scores, self.b.scores
        if min(len(x), len(y)) < 3:
            return ""
        (least, steady), (most, wide) = sorted((stdev(r.scores), r.label) for r in (self.a, self.b))
        times = f"{steady} is equal in all seeds and {wide} is not"
        if least:
            times = f"{wide} varies {most / least:.1f} times as much over seeds as {steady}"
        if min(len(x), len(y)) < ENOUGH:
            return times if self.contrast.p > STRICT and most > UNLIKE * least else ""
        shared = [s for s in self.a.seeds if s in self.b.runs]
        d = [self.a.runs[s].score - self.b.runs[s].score for s in shared]
        bounds = (0.0, 1.0) if next(iter(self.a.runs.values())).metric in SHARES else None
        unlike, leans = stats.doubts(x, y, d, bounds)
        if leans:
            return f"{times}, and is within {stats.NEAR:g} spreads of the bound of its scores"
        if unlike:
            return f"{times}, and these seeds may have missed its tail"
        return ""

    @property
    def runs_differ(self) -> bool:
        interval = self.runs and self.runs[1]
        return bool(interval) and not interval.low <= 0 <= interval.high  # type: ignore[union-attr]

    def turned(self) -> "Pair":
        """b - a."""
        signs = replace(self.signs, widest=stats.turned(self.signs.widest))
        runs = self.runs and (-self.runs[0], stats.turned(self.runs[1]))
        return replace(
            self, a=self.b, b=self.a, contrast=-self.contrast, signs=signs, runs=runs,
            improvement=1 - self.improvement,
        )  # fmt: skip


@dataclass
class Comparison:
    """Rows and all results about them. named: how their measurements differ. axis: of curves."""

    title: str
    metric: str
    rows: list[ComparedRow]
    reference: ComparedRow
    chosen: bool  # the reference was named beforehand: only pairs with it are tested
    pairs: list[Pair]
    threshold: float | None
    notes: list[str]
    gathered: Gathered
    named: list[str]
    axis: str = "tokens"

    @property
    def what(self) -> str:
        """The metric's name in words, such as held-out accuracy or training reward."""
        return next(iter(self.rows[0].runs.values())).what

    @property
    def has_curves(self) -> bool:
        """Whether there are curves, not only final scores."""
        return any(len(r.learning_curve) > 1 for row in self.rows for r in row.runs.values())

    def pair(self, a: ComparedRow, b: ComparedRow) -> Pair | None:
        """a - b, if the two rows share a seed and are among the tested pairs."""
        if found := self._by_rows.get((id(a), id(b))):
            return found
        found = self._by_rows.get((id(b), id(a)))
        return found and found.turned()

    @cached_property
    def _by_rows(self) -> dict[tuple[int, int], Pair]:
        return {(id(p.a), id(p.b)): p for p in self.pairs}

    def all_failed(self) -> dict[str, str]:
        """Rows without a finished run: label -> why their first run failed."""
        failed = self.gathered.failed
        lost = sorted(set(failed) - {row.label for row in self.rows})
        return {label: next(iter(failed[label].values())) for label in lost}

    @property
    def best(self) -> ComparedRow:
        return max(self.rows, key=lambda r: fmean(r.scores))

    def shows(self, p: Pair) -> tuple[float, float] | None:
        """80 % interval of `detectable`: the spread is only estimated from the seeds."""
        least = self.detectable(p)
        if least is None or not math.isfinite(least):
            return None
        low, high = stats.spread_range(p.contrast.n)
        return low * least, high * least

    def detectable(self, p: Pair) -> float | None:
        """The true difference that four of five repetitions with these seeds would detect, given
        the observed spread."""
        return stats.detectable(p.contrast.sd, p.contrast.n, len(self.rows), reference=self.chosen)


def compare(
    paths: Iterable[str | Path],
    *,
    reference: str | None = None,
    threshold: float | None = None,
    force: bool = False,
    metric: str | None = None,
) -> Comparison:
    """Read runs and sweeps, and compare their rows. metric: a metric of evaluations, `accuracy` for
    `eval/accuracy`; by default, the chance of the correct answer if all runs have it, otherwise the
    metric of their summaries; for CSV files of scores, the column. Raises UsageError, RunError."""
    paths = list(paths)
    if rows := rows_of_files(paths, metric):
        records = [run for row in rows for run in row.runs.values()]
        return compare_rows(rows, Gathered(records), reference=reference, threshold=threshold)
    gathered = gather(paths)
    if not gathered.records:
        raise UsageError(_nothing(gathered))
    _measure(gathered, metric)
    named = check_comparable(gathered, force)
    rows, notes = make_rows(gathered)
    if not rows:
        raise UsageError(_nothing(gathered))
    return compare_rows(rows, gathered, named, notes, reference=reference, threshold=threshold)


def compare_rows(
    rows: list[ComparedRow],
    gathered: Gathered,
    named: Sequence[str] = (),
    notes: Sequence[str] = (),
    *,
    reference: str | None = None,
    threshold: float | None = None,
) -> Comparison:
    """Compare rows of runs that were read. named: how their measurements differ. Raises
    UsageError."""
    _find_splits(rows)
    chosen = find_row(reference, [*rows, *gathered.lost()]) if reference else None
    absent = []
    if chosen and not chosen.runs:
        absent = [f"no run of the reference {chosen.label} is finished, so all pairs are tested"]
        chosen = None
    pairs = _pairs(rows, chosen)
    spent = _spent(rows)
    named = [*named, *([f"tokens: {spent[0]}"] if spent and spent[1] > DEARER else [])]
    first = gathered.records[0]
    tasks = dict.fromkeys(r.summary["task"] for r in gathered.records)
    title = f"{', '.join(tasks)}: {first.what}"
    if "eval.samples" in first.recipe:
        title += f", {first.recipe['eval.samples']} samples per run"
    elif first.measure == TRAINING:
        title += ", mean of the last tenth of the steps"
    if named:
        title += f"; NOT ON ONE SCALE: {'; '.join(named)}"
    if threshold is None:
        threshold = default_threshold(rows)
    notes = [*absent, *_notes(rows, pairs, gathered), *notes]
    return Comparison(
        title, first.metric, rows, chosen or rows[0], chosen is not None, pairs, threshold, notes,
        gathered, named,
    )  # fmt: skip


def _measure(gathered: Gathered, metric: str | None) -> None:
    """Set the measure of the comparison: the training reward of all runs if an imported run has no
    evaluation."""
    trained = [r.path.name for r in gathered.records if r.measure == TRAINING]
    if metric == TRAINING or (trained and metric is None):
        gathered.records = [replace(r, measure=TRAINING) for r in gathered.records]
        return
    if trained:
        raise UsageError(
            f"--metric: {metric!r} is measured in evaluations, but {', '.join(trained)} was not "
            f"evaluated; without --metric, rlzoo compares runs by the {TRAINING}"
        )
    have = [set(r.evaluations[-1]) & set(r.evaluations[0]) for r in gathered.records]
    shared = {k.removeprefix("eval/") for k in set.intersection(*have) if k.startswith("eval/")}
    if metric is None:
        metric = "answer_prob" if "answer_prob" in shared else ""
    elif (metric := metric.removeprefix("eval/")) not in shared:
        bounds = ("_low", "_high")
        known = sorted(name for name in shared if not name.endswith(bounds))
        raise UsageError(
            f"--metric: {metric!r} is not in the evaluations of every run{nearest(metric, known)} "
            f"(available: {', '.join(known)})"
        )
    gathered.records = [replace(r, measure=metric) for r in gathered.records]


def _pairs(rows: Sequence[ComparedRow], reference: ComparedRow | None) -> list[Pair]:
    """All pairs, or those with the reference; those that share no seed by Welch's test."""
    seeds = sorted({seed for row in rows for seed in row.runs})
    table = [[row.runs[s].score if s in row.runs else math.nan for row in rows] for s in seeds]
    at = next((i for i, row in enumerate(rows) if row is reference), None)
    contrasts = stats.block(table, at).contrasts
    pairs = []
    family = [(i, j) for i, j in itertools.combinations(range(len(rows)), 2) if at in (None, i, j)]
    family = [(j, i) if i == at else (i, j) for i, j in family]
    for i, j in family:
        a, b = rows[i], rows[j]
        shared = [s for s in a.seeds if s in b.runs]
        contrast = contrasts.get((i, j)) or stats.welch(a.scores, b.scores, len(family))
        signs = stats.paired([a.runs[s].score - b.runs[s].score for s in shared])
        pair = Pair(a, b, contrast, signs, stats.improvement(a.scores, b.scores))
        pair.unpaired = not shared
        pair.runs, pair.sampling = over_prompts(a, b, shared, len(family))
        pairs.append(pair)
    for pair, corrected in zip(pairs, stats.holm([x.signs.p for x in pairs]), strict=True):
        pair.p_signs = corrected
    return pairs


def _nothing(gathered: Gathered) -> str:
    reasons = [f"{name}: {why}" for name, why in gathered.skipped.items()]
    reasons += [
        f"{name} failed: {why}" for row in gathered.failed.values() for name, why in row.items()
    ]
    return f"no finished run to compare{': ' if reasons else ''}{'; '.join(reasons)}"


def find_row(name: str, rows: Sequence[Any]) -> Any:
    """Find a row by its label, its values (`0.95`, `estimator.lam=0.95`), or a part of its label
    that no other label contains. Rows: objects with a label and values."""
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
            f"--reference: {name!r} does not identify one row{nearest(name, labels)} (available: "
            f"{', '.join(labels)})"
        )
    return hit[0]


def _find_splits(rows: Sequence[ComparedRow]) -> None:
    """Mark rows whose runs are of two kinds: of three runs or more, the widest gap between scores
    is at least half of all that scores here range over, from where runs began, and held-out
    intervals of the two sides do not meet."""
    runs = [run for row in rows for run in row.runs.values()]
    ends = [run.score for run in runs] + [b for run in runs if math.isfinite(b := run.before)]
    span = max(ends) - min(ends)
    for row in rows:
        ordered = sorted(row.runs, key=lambda seed: row.runs[seed].score)
        scores = [row.runs[seed].score for seed in ordered]
        gaps = [b - a for a, b in itertools.pairwise(scores)]
        if len(scores) < 3 or max(gaps) < 0.5 * span or span == 0:
            continue
        at = 1 + gaps.index(max(gaps))
        low, high = ordered[:at], ordered[at:]
        top = max(_bound(row.runs[seed], "high") for seed in low)
        if top < min(_bound(row.runs[seed], "low") for seed in high):
            row.split = low


def _bound(run: Record, side: str) -> float:
    """An end of the last evaluation's interval; the score without one."""
    if run.measure == TRAINING or not run.evaluations:
        return run.score
    return float(run.evaluations[-1].get(f"eval/{run.metric}_{side}", run.score))


def default_threshold(rows: Sequence[ComparedRow]) -> float | None:
    """Halfway between the runs' start and the best row's end, to two digits; None without a
    rise."""
    before = [r.before for row in rows for r in row.runs.values()]
    start, best = sum(before) / len(before), max(stats.iqm(row.scores) for row in rows)
    return float(f"{(start + best) / 2:.2g}") if best > start else None


def _notes(rows: Sequence[ComparedRow], pairs: Sequence[Pair], gathered: Gathered) -> list[str]:
    notes = []
    few = [r for r in rows if len(r.seeds) < 2]
    if few:
        single = ", ".join(r.label for r in few)
        notes.append(f"no interval, because there is only one seed: {single}")
    spreads = {r.label: stdev(r.scores) for r in rows if len(r.seeds) > 2 and not r.split}
    if len(spreads) > 1 and max(spreads.values()) > 4 * min(spreads.values()) > 0:
        least, most = min(spreads, key=spreads.__getitem__), max(spreads, key=spreads.__getitem__)
        notes.append(
            f"{most} varies {spreads[most] / spreads[least]:.0f} times as much over seeds as "
            f"{least}, so each pair is tested with its own spread where that is larger"
        )
    for p in pairs:
        if p.unpaired:
            notes.append(
                f"{p.a.label} and {p.b.label} share no seed, so they are compared by Welch's "
                "unpaired t test"
            )
    records = [run for row in rows for run in row.runs.values()]
    if any("given" in r.summary for r in records):
        return notes
    if lacking := unrecorded(records):
        notes.append(f"not compared, because not every run recorded them: {', '.join(lacking)}")
    notes += made_otherwise(records)
    if early := [r.path.name for r in records if r.summary.get("stopped", "budget") != "budget"]:
        notes.append(f"stopped before the budget ended: {', '.join(early)}")
    if (spent := _spent(rows)) is None:
        notes.append("some runs did not record tokens, so curves and areas use steps instead")
    elif spent[1] > 1.1:
        notes.append(f"token budgets differ: {spent[0]}; set train.tokens to make them equal")
    for why in dict.fromkeys(gathered.skipped.values()):
        names = [name for name, reason in gathered.skipped.items() if reason == why]
        notes.append(f"skipped, {why}: {', '.join(names)}")
    for row, runs in gathered.failed.items():
        for name, why in runs.items():
            notes.append(f"failed: {name}{'' if row in name else f' ({row})'}: {why}")
    return notes


def _spent(rows: Sequence[ComparedRow]) -> tuple[str, float] | None:
    """How many times as many tokens as the least the dearest row generated, in words and as a
    number; None if a row did not record them."""
    spent = [(n, row.label) for row in rows if (n := tokens_spent(row)) is not None]
    if len(spent) < len(rows):
        return None
    (fewest, least), (more, most) = min(spent), max(spent)
    times = more / max(1, fewest)
    return f"{most} generated {times:.1f} times as many as {least}", times
