"""Measures of a row: when it reached a score, how much it generated and how far it moved; of two
rows, whether these particular runs differ on their prompts, regardless of other seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from rlzoo.runs.metrics import REF_KL_PER_RESPONSE, REWARD
from rlzoo_lab import stats
from rlzoo_lab.data.comparable import ComparedRow
from rlzoo_lab.data.record import Record


@dataclass
class Reach:
    """When the median run reached the threshold; None if it did not."""

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
    return fmean(values) if values else None


def tokens_spent(row: ComparedRow) -> float | None:
    """Generated tokens per run, mean over seeds; None if a run did not record them."""
    found = [r.summary.get("tokens") for r in row.runs.values()]
    known = [float(n) for n in found if n is not None]
    return fmean(known) if len(known) == len(found) else None


def kl_spent(row: ComparedRow) -> float | None:
    """The KL to the reference in nats per response, mean over the last tenth of the steps."""
    return mean_of(row, lambda r: r.late(REF_KL_PER_RESPONSE))


def greedy(run: Record) -> float | None:
    """The result of greedy decoding at the last evaluation; None if it was not used."""
    return run.evaluations[-1].get("eval/greedy") if run.evaluations else None


def curve(row: ComparedRow, name: str = REWARD) -> list[float]:
    """A training metric per step, averaged over seeds, up to the last step of the shortest run."""
    runs = [r.series(name) for r in row.runs.values()]
    return [fmean(values) for values in zip(*runs, strict=False)]


def over_prompts(
    a: ComparedRow, b: ComparedRow, seeds: Sequence[int], comparisons: int
) -> tuple[tuple[float, stats.Interval | None] | None, float | None]:
    """The mean difference between the rows' runs of these seeds with its interval over prompts, and
    the share of its variance over seeds that comes from prompts and samples. Both are None if a
    folder has no such results, or if two runs of a seed had different prompts."""
    if not seeds:
        return None, None
    differences, prompts, seen = [], [], []
    for seed in seeds:
        one, other = _last(a.runs[seed]), _last(b.runs[seed])
        if one is None or other is None or not np.array_equal(one[0], other[0]):
            return None, None
        difference = one[1].astype(float) - other[1]
        differences.append(difference)
        prompts.append(one[0])
        seen.append(stats.variance_over_prompts(difference, one[0]))
    found = stats.over_prompts(differences, prompts, comparisons)
    spread = float(np.var([d.mean() for d in differences], ddof=1)) if len(seeds) > 1 else 0.0
    share = float(np.mean(seen)) / spread if spread > 0 else float("nan")
    return found, None if np.isnan(share) else min(1.0, share)


def _last(run: Record) -> tuple[Any, Any] | None:
    """(checksums of the prompts with their answers, the metric of each) of the last evaluation;
    None of a run from before these checksums were kept."""
    name = "right" if run.metric == "accuracy" else run.metric
    arrays = run.by_prompt
    return (arrays["prompt"], arrays[name]) if {name, "prompt"} <= arrays.keys() else None
