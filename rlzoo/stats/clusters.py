"""Intervals where values come in clusters: responses to one prompt are alike, and a prompt that is
drawn twice is no second prompt."""

import math
from collections.abc import Hashable, Sequence

import numpy as np

from rlzoo.stats.intervals import wilson
from rlzoo.stats.student import critical


def mean_over(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, float]:
    """95 % interval of the mean over clusters drawn anew, by Student's t; degenerate for one.

    values, clusters: (N,) each; equal clusters belong together.
    Source: Liang and Zeger 1986, doi:10.1093/biomet/73.1.13.
    """
    mean, square, count = _spread(values, clusters)
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
    mean, square, count = _spread(shares, clusters)
    most = len(shares) * samples
    trials = count
    if count < most and count > 1 and square > 1e-12:
        few = (1.959964 / critical(0.95, count - 1)) ** 2
        trials = max(count, min(most, round(few * mean * (1 - mean) / square)))
    return wilson(mean * trials, trials)


def _spread(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, float, int]:
    """Mean, its variance over clusters (biased), and their number."""
    x = np.asarray(values, float)
    names: dict[Hashable, int] = {}
    home = [names.setdefault(c, len(names)) for c in clusters]
    sums = np.bincount(home, x - x.mean())
    return float(x.mean()), float((sums**2).sum()) / len(x) ** 2, len(sums)
