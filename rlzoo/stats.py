"""Statistics on plain numbers. No torch here."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray


def wilson(successes: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a proportion, 95 % by default; (0, 1) for n = 0.

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    if n == 0:
        return 0.0, 1.0
    p, zz = successes / n, z * z
    middle = (p + zz / (2 * n)) / (1 + zz / n)
    half = z / (1 + zz / n) * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(values: list[float], z: float = 1.959964) -> tuple[float, float]:
    """Normal 95 % interval of a mean; degenerate for fewer than two values."""
    n = len(values)
    mean = sum(values) / max(n, 1)
    if n < 2:
        return mean, mean
    var = sum((v - mean) ** 2 for v in values) / (n - 1)
    half = z * math.sqrt(var / n)
    return mean - half, mean + half


def jackknife_se(left_out: Any) -> Array:
    """The standard error of a statistic from its n values with one unit left out in turn,
    (n, ...) -> (...).  Source: Efron and Stein 1981, doi:10.1214/aos/1176345462."""
    values = np.asarray(left_out, float)
    return np.sqrt((len(values) - 1) * values.var(0))


# Of many runs: `scores` is an array (seeds,) or (seeds, tasks): one number a run. Tasks are strata.

ALPHA = 0.05

POWER = 0.8

EXACT_SEEDS = 14  # up to here all 2^n sign flips are tried, beyond a sample of as many

REPETITIONS = 10_000


class Interval(NamedTuple):
    low: float
    high: float


def iqm(scores: Any) -> float:
    """The interquartile mean: the mean of the middle half. A quarter of the runs, rounded down,
    is left out at either end.

    Source: Agarwal et al. 2021, arXiv:2108.13264.
    """
    return float(_iqm(np.asarray(scores, float).reshape(1, -1))[0])


def _iqm(flat: Array) -> Array:
    """(repetitions, runs) -> (repetitions,)"""
    n = flat.shape[-1]
    cut = n // 4
    return np.sort(flat, -1)[..., cut : n - cut].mean(-1)


def _resample(scores: Array, repetitions: int, rng: np.random.Generator) -> Array:
    """(repetitions, seeds, tasks): seeds drawn with replacement within each task."""
    table = scores.reshape(len(scores), -1)
    picks = rng.integers(len(table), size=(repetitions, *table.shape))
    return np.take_along_axis(table[None], picks, 1)


def iqm_interval(scores: Any, repetitions: int = REPETITIONS) -> Interval | None:
    """Percentile bootstrap 95 % interval of the IQM, stratified by task; None for fewer than two
    seeds. It is too narrow for few seeds: see docs/compare.md.

    Source: Agarwal et al. 2021, arXiv:2108.13264.
    """
    table = np.asarray(scores, float)
    if len(table) < 2:
        return None
    drawn = _resample(table, repetitions, np.random.default_rng(0))
    return _percentiles(_iqm(drawn.reshape(repetitions, -1)))


def iqm_band(curves: Any, repetitions: int = 2_000) -> tuple[Array, Array, Array]:
    """IQM over seeds of curves (seeds, points), and its pointwise 95 % interval: a (points,) each.
    With a single seed the interval is NaN."""
    table = np.asarray(curves, float)
    middle = _iqm(table.T)
    if len(table) < 2:
        return middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    picks = np.random.default_rng(0).integers(len(table), size=(repetitions, len(table)))
    drawn = np.stack([_iqm(column[picks]) for column in table.T])  # (points, repetitions)
    low, high = np.percentile(drawn, [50 * ALPHA, 100 - 50 * ALPHA], axis=1)
    return middle, low, high


def _percentiles(values: Array) -> Interval:
    low, high = np.percentile(values, [50 * ALPHA, 100 - 50 * ALPHA])
    return Interval(float(low), float(high))


def improvement(x: Any, y: Any) -> float:
    """P(X > Y): the share of pairs of a run of `x` and one of `y` in which x's is better, ties
    counted half, averaged over tasks.

    Source: Agarwal et al. 2021, arXiv:2108.13264; Mann and Whitney 1947.
    """
    a, b = (np.asarray(v, float).reshape(1, len(v), -1) for v in (x, y))
    return float(_improvement(a, b)[0])


def _improvement(x: Array, y: Array) -> Array:
    """(repetitions, seeds, tasks) each -> (repetitions,)"""
    gap = x[:, :, None, :] - y[:, None, :, :]
    return ((gap > 0) + 0.5 * (gap == 0)).mean((1, 2, 3))


def improvement_interval(x: Any, y: Any, repetitions: int = 2_000) -> Interval | None:
    """Bootstrap 95 % interval of P(X > Y), both sides resampled; None for fewer than two seeds."""
    if min(len(x), len(y)) < 2:
        return None
    rng = np.random.default_rng(0)
    drawn = [_resample(np.asarray(v, float), repetitions, rng) for v in (x, y)]
    return _percentiles(_improvement(*drawn))


def performance_profile(scores: Any, thresholds: Any) -> Array:
    """The share of runs that score above each threshold.

    Source: Agarwal et al. 2021, arXiv:2108.13264.
    """
    flat = np.asarray(scores, float).reshape(-1)
    return (flat[:, None] > np.asarray(thresholds, float)[None]).mean(0)


@dataclass(frozen=True)
class Paired:
    """The mean difference of paired runs. `interval` is None where no interval of that many pairs
    is a 95 % one: `smallest_p` is then above .05."""

    n: int
    mean: float
    sd: float
    p: float
    interval: Interval | None


def paired(differences: Any) -> Paired:
    """Sign-flip test of a mean difference, and the interval that the test inverts to.

    Were the two configurations the same, each pair's difference could as well have had the other
    sign: p is the share of all 2^n sign patterns whose mean is at least as far from 0. Shifted by
    delta, the pattern that flips the subset S is as extreme as the data where mean(d_S) <= delta.
    So the deltas that are not refuted lie between two order statistics of the subset means, and
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
    subsets, sizes = _subsets(n)
    sums = subsets @ d
    patterns = len(sizes) + 1  # and the empty subset: the data as they are
    # sum of s*d = total - 2 * (sum over the flipped subset)
    slack = 1e-12 * float(np.abs(d).sum())
    extreme = np.abs(d.sum() - 2 * sums) >= abs(d.sum()) - slack
    p = (1 + int(extreme.sum())) / patterns
    rank = int(ALPHA / 2 * patterns)
    if rank == 0:
        return Paired(n, mean, sd, p, None)
    means = np.partition(sums / sizes, (rank - 1, len(sizes) - rank))
    interval = Interval(float(means[rank - 1]), float(means[len(sizes) - rank]))
    return Paired(n, mean, sd, p, interval)


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


def seeds_needed(comparisons: int = 1) -> int:
    """How many pairs it takes until the first step of Holm's correction can be passed."""
    return math.ceil(1 + math.log2(max(1, comparisons) / ALPHA))


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for their number, step down, in the order given.

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65-70.
    """
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = worst
    return corrected


def detectable(sd: float, n: int, comparisons: int = 1) -> float | None:
    """The smallest true mean difference that n pairs show in 80 % of repetitions, at .05 over the
    first step of Holm's correction; None where no difference could be shown.

    (t_{1 - .05/(2m)} + t_{.8}) sd / sqrt(n), Student's t with n - 1 degrees of freedom.
    """
    if n < 2 or smallest_p(n) * comparisons > ALPHA:
        return None
    t = student_quantile(1 - ALPHA / (2 * comparisons), n - 1) + student_quantile(POWER, n - 1)
    return t * sd / math.sqrt(n)


def student_quantile(p: float, freedom: int) -> float:
    """Quantile of Student's t by the Cornish-Fisher expansion: within 0.4 % from 5 degrees
    of freedom for p up to .999.

    Source: Abramowitz and Stegun 1964, 26.7.5.
    """
    z, v = NormalDist().inv_cdf(p), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )


def area(x: Sequence[float], y: Sequence[float]) -> float:
    """The mean height of the curve through (x, y): trapezoids over the range of x."""
    if len(x) < 2 or x[-1] == x[0]:
        return float(y[-1])
    pieces = zip(itertools.pairwise(x), itertools.pairwise(y), strict=True)
    return sum((b - a) * (u + v) / 2 for (a, b), (u, v) in pieces) / (x[-1] - x[0])


def reached(x: Sequence[float], y: Sequence[float], threshold: float) -> float | None:
    """The first x at which y is at or over the threshold; None where the run ended before."""
    return next((a for a, b in zip(x, y, strict=True) if b >= threshold), None)


def censored_median(times: Sequence[float | None]) -> float | None:
    """The median of times of which some are only known to be later (None); None where the median
    is itself among those. All runs were watched equally long, so this is exact."""
    known = sorted(math.inf if t is None else t for t in times)
    if not known:
        return None
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    return None if math.isinf(middle) else middle
