"""Results per prompt: whether these particular runs differ, regardless of other seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlzoo_lab import stats
from rlzoo_lab.data.comparable import ComparedRow
from rlzoo_lab.data.record import Record


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
