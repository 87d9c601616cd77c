"""Intervals of means, of one run's prompts or of several seeds, and numbers of one curve.

Responses to one prompt are alike, and a prompt that is drawn twice is not a second prompt.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlzoo.stats import ALPHA, Array, Interval, critical, spread


def distinct(index: Any) -> int:
    """How many different prompts an evaluation had: -1 is one of its own."""
    return int(_homes(index).max(initial=-1)) + 1


def _homes(index: Any) -> Array:
    """(N,) the number of each prompt among those that differ."""
    index = np.asarray(index)
    own = np.where(index < 0, -1 - np.arange(len(index)), index)
    return np.unique(own, return_inverse=True)[1]


def variance_over_prompts(x: Any, index: Any) -> float:
    """Variance of the mean of x (N,) over new draws of the prompts. A prompt that occurs several
    times, by `index` (N,), is one cluster; nan for a single cluster."""
    _, square, count = spread(x, _homes(index))
    return square * count / (count - 1) if count > 1 else math.nan


def over_prompts(
    differences: Sequence[Any], prompts: Sequence[Any], comparisons: int = 1
) -> tuple[float, Interval | None]:
    """Mean difference of *these* runs, and its 95 % interval over new draws of the prompts, not
    over other seeds.

    differences: an array (N,) for each seed, of two runs on the same prompts. prompts: their index,
    (N,) each; one that comes several times counts once, as a cluster, and -1 is a prompt of its
    own. comparisons: how many intervals are to hold together (Bonferroni).
    """
    means, variance, clusters = [], 0.0, 0
    for d, index in zip(differences, prompts, strict=True):
        of_run, square, count = spread(d, _homes(index))
        if count < 2:
            return float(np.mean([np.mean(d) for d in differences])), None
        means.append(of_run)
        variance += square * count / (count - 1)
        clusters += count - 1
    mean, se = float(np.mean(means)), math.sqrt(variance) / len(means)
    half = critical(1 - ALPHA / comparisons, clusters) * se
    return mean, Interval(mean - half, mean + half)


def mean_interval(values: list[float], z: float = 1.959964) -> tuple[float, float]:
    """Normal 95 % interval of a mean; degenerate for fewer than two values."""
    n = len(values)
    mean = sum(values) / max(n, 1)
    if n < 2:
        return mean, mean
    var = sum((v - mean) ** 2 for v in values) / (n - 1)
    half = z * math.sqrt(var / n)
    return mean - half, mean + half


def t_interval(values: Sequence[float]) -> Interval | None:
    """Student's 95 % interval of a mean; None for fewer than two values.

    It supposes values about as spread to one side as to the other: docs/compare.md has its
    coverage where they are not.  Source: Student 1908, doi:10.1093/biomet/6.1.1.
    """
    x = np.asarray(values, float)
    if len(x) < 2:
        return None
    half = critical(1 - ALPHA, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(float(x.mean()) - half, float(x.mean()) + half)


def area(x: Sequence[float], y: Sequence[float]) -> float:
    """The mean height of the curve through (x, y): trapezoids over the range of x."""
    if len(x) < 2 or x[-1] == x[0]:
        return float(y[-1])
    pieces = zip(itertools.pairwise(x), itertools.pairwise(y), strict=True)
    return sum((b - a) * (u + v) / 2 for (a, b), (u, v) in pieces) / (x[-1] - x[0])


def reached(x: Sequence[float], y: Sequence[float], threshold: float) -> float | None:
    """The first x at which y is at or over the threshold; None if the run ended before."""
    return next((a for a, b in zip(x, y, strict=True) if b >= threshold), None)


def censored_median(times: Sequence[float | None]) -> float | None:
    """The median of times of which some are only known to be later (None); None if the median
    is itself among those. All runs were watched equally long, so this is exact."""
    known = sorted(math.inf if t is None else t for t in times)
    if not known:
        return None
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    return None if math.isinf(middle) else middle


def smoothed(y: Sequence[float], reach: int) -> list[float]:
    """The mean of up to `reach` points before and after each, the nearer the heavier."""
    out = running_mean(np.asarray(y, float), reach // 2)
    return running_mean(out, reach - reach // 2).tolist()  # twice: a spike becomes a hill, no box


def running_mean(y: Array, width: int) -> Array:
    """The mean of up to `width` points before and after each, (N,) -> (N,)."""
    total = np.concatenate([[0.0], np.cumsum(y)])
    at = np.arange(len(y))
    low, high = np.maximum(at - width, 0), np.minimum(at + width + 1, len(y))
    return (total[high] - total[low]) / (high - low)
