"""Intervals where values come in clusters: responses to one prompt are alike, and a prompt that is
drawn twice is no second prompt."""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from rlzoo.stats.intervals import ALPHA, Array, Interval, wilson
from rlzoo.stats.student import critical


def mean_over(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, float]:
    """95 % interval of the mean over clusters drawn anew, by Student's t; degenerate for one.

    values, clusters: (N,) each; equal clusters belong together.
    Source: Liang and Zeger 1986, doi:10.1093/biomet/73.1.13.
    """
    mean, square, count = _spread(values, _numbered(clusters))
    if count < 2:
        return mean, mean
    half = critical(0.95, count - 1) * math.sqrt(square * count / (count - 1))
    return mean - half, mean + half


def share_over(
    shares: Sequence[float], clusters: Sequence[Hashable], samples: int = 1
) -> tuple[float, float]:
    """95 % interval of the mean of shares in [0, 1], each from `samples` responses to a prompt.

    Wilson's interval with as many independent trials as would have given the variance over
    clusters, p (1 - p) / Var(mean), fewer for the few clusters that tell it; at least one for each
    cluster, at most one for each response. With one response to each of different prompts that is
    the number of prompts, and the interval Wilson's own.
    Source: Korn and Graubard 1998, Survey Methodology 24; Franco et al. 2019, JSSAM 7.
    """
    mean, square, count = _spread(shares, _numbered(clusters))
    most = len(shares) * samples
    trials = count
    if count < most and count > 1 and square > 1e-12:
        few = (1.959964 / critical(0.95, count - 1)) ** 2
        trials = max(count, min(most, round(few * mean * (1 - mean) / square)))
    return wilson(mean * trials, trials)


def _spread(values: Any, home: Any) -> tuple[float, float, int]:
    """Mean of (N,), its variance over clusters numbered from 0, `home` (N,) (biased), and their
    number."""
    x = np.asarray(values, float)
    sums = np.bincount(home, x - x.mean())
    return float(x.mean()), float((sums**2).sum()) / len(x) ** 2, len(sums)


def _numbered(clusters: Sequence[Hashable]) -> list[int]:
    names: dict[Hashable, int] = {}
    return [names.setdefault(c, len(names)) for c in clusters]


def distinct(index: Any) -> int:
    """How many different prompts an evaluation had: -1 is one of its own."""
    return int(_homes(index).max(initial=-1)) + 1


def _homes(index: Any) -> Array:
    """(N,) the number of each prompt among those that differ."""
    index = np.asarray(index)
    own = np.where(index < 0, -1 - np.arange(len(index)), index)
    return np.unique(own, return_inverse=True)[1]


def variance_over_prompts(x: Any, index: Any) -> float:
    """Of the mean of x (N,), were the prompts drawn anew: one that comes several times, by `index`
    (N,), counts once, as a cluster; nan where there is one alone."""
    _, square, count = _spread(x, _homes(index))
    return square * count / (count - 1) if count > 1 else math.nan


def over_prompts(
    differences: Sequence[Any], prompts: Sequence[Any], comparisons: int = 1
) -> tuple[float, Interval | None]:
    """Mean difference of *these* runs, and its 95 % interval were the prompts drawn anew: it says
    nothing of other seeds.

    differences: an array (N,) for each seed, of two runs on the same prompts. prompts: their index,
    (N,) each; one that comes several times counts once, as a cluster, and -1 is a prompt of its
    own. comparisons: how many intervals are to hold together (Bonferroni).
    """
    means, variance, clusters = [], 0.0, 0
    for d, index in zip(differences, prompts, strict=True):
        of_run, square, count = _spread(d, _homes(index))
        if count < 2:
            return float(np.mean([np.mean(d) for d in differences])), None
        means.append(of_run)
        variance += square * count / (count - 1)
        clusters += count - 1
    mean, se = float(np.mean(means)), math.sqrt(variance) / len(means)
    half = critical(1 - ALPHA / comparisons, clusters) * se
    return mean, Interval(mean - half, mean + half)
