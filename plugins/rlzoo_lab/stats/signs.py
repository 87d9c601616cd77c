"""Sign-flip tests of paired differences, and Holm's correction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlzoo.stats import ALPHA, Array, Interval

EXACT_SEEDS = 14  # up to here all 2^n sign flips are tried, beyond a sample of as many


@dataclass(frozen=True)
class Paired:
    """The mean difference of paired runs. `interval` is None if no interval of that many pairs
    is a 95 % one: `smallest_p` is then above 0.05. From the least to the largest difference is the
    widest interval that a sign-flip test gives, exact at its own `level`: 75 % of three pairs, 94 %
    of five."""

    n: int
    mean: float
    sd: float
    p: float
    interval: Interval | None
    widest: Interval | None = None

    @property
    def level(self) -> float:
        """The confidence level of the widest interval."""
        return 1 - 2 / 2**self.n


def paired(differences: Any) -> Paired:
    """Sign-flip test of a mean difference, and the interval that the test inverts to.

    Were the two configurations the same, each pair's difference could as well have had the other
    sign: p is the share of all 2^n sign patterns whose mean is at least as far from 0. Shifted by
    delta, the pattern that flips the subset S is as extreme as the data where mean(d_S) <= delta.
    So the deltas that are not refuted are between two order statistics of the subset means, and
    the interval excludes 0 exactly where p <= .05. Exact to 14 pairs; beyond, 2^14 patterns drawn
    at random, closed under negation. It supposes differences that are symmetric about their mean.

    Source: Fisher 1935; Hartigan 1969, doi:10.1080/01621459.1969.10501057.
    """
    d = np.asarray(differences, float)
    n = len(d)
    mean = float(d.mean()) if n else math.nan
    sd = float(d.std(ddof=1)) if n > 1 else math.nan
    if n == 0:
        return Paired(n, mean, sd, 1.0, None)
    widest = Interval(float(d.min()), float(d.max())) if n > 1 else None
    subsets, sizes = _subsets(n)
    sums = subsets @ d
    patterns = len(sizes) + 1  # and the empty subset: the data as they are
    # sum of s*d = total - 2 * (sum over the flipped subset)
    slack = 1e-12 * float(np.abs(d).sum())
    extreme = np.abs(d.sum() - 2 * sums) >= abs(d.sum()) - slack
    p = (1 + int(extreme.sum())) / patterns
    rank = int(ALPHA / 2 * patterns)
    if rank == 0:
        return Paired(n, mean, sd, p, None, widest)
    means = np.partition(sums / sizes, (rank - 1, len(sizes) - rank))
    interval = Interval(float(means[rank - 1]), float(means[len(sizes) - rank]))
    return Paired(n, mean, sd, p, interval, widest)


@cache
def _subsets(n: int) -> tuple[Array, Array]:
    """Which pairs a pattern flips, (patterns - 1, n) of 0 and 1, and how many, (patterns - 1,)."""
    if n <= EXACT_SEEDS:
        codes = np.arange(1, 2**n)
        flips = (codes[:, None] >> np.arange(n)) & 1
    else:
        half = np.random.default_rng(n).integers(2, size=(2 ** (EXACT_SEEDS - 1) - 1, n))
        half = half[(half.sum(1) > 0) & (half.sum(1) < n)]
        flips = np.concatenate([half, 1 - half, np.ones((1, n), half.dtype)])
    return flips.astype(float), flips.sum(1)


def smallest_p(n: int) -> float:
    """The least p that a sign-flip test of n pairs can give."""
    return 1.0 if n < 1 else 2 / 2 ** min(n, EXACT_SEEDS)


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for their number, step down, in the order given.

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65-70.
    """
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = worst
    return corrected
