"""Statistics on plain numbers: confidence intervals for measurements. It does not import torch.

Student's t, Tukey's range and Dunnett's t are computed by quadrature. scipy has the first two but
would be a dependency for these only; tests compare with its values.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

Array = np.ndarray

ALPHA = 0.05

_GRID = np.linspace(-9, 9, 18_001)
_NORMAL = np.array([0.5 * math.erfc(x) for x in (-_GRID / math.sqrt(2)).tolist()])


class Interval(NamedTuple):
    low: float
    high: float


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


def mean_over(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, float]:
    """95 % interval of the mean over resampled clusters, by Student's t; degenerate for one.

    values, clusters: (N,) each; equal clusters belong together.
    Source: Liang and Zeger 1986, doi:10.1093/biomet/73.1.13.
    """
    mean, square, count = spread(values, _numbered(clusters))
    if count < 2:
        return mean, mean
    half = critical(0.95, count - 1) * math.sqrt(square * count / (count - 1))
    return mean - half, mean + half


def share_over(
    shares: Sequence[float], clusters: Sequence[Hashable], samples: int = 1
) -> tuple[float, float]:
    """95 % interval of the mean of shares in [0, 1], each from `samples` responses to a prompt.

    Wilson's interval with as many independent trials as would have given the variance over
    clusters, p (1 - p) / Var(mean), fewer where clusters are few; at least one for each
    cluster, at most one for each response. With one response to each of different prompts that is
    the number of prompts, and the interval Wilson's own.
    Source: Korn and Graubard 1998, Survey Methodology 24; Franco et al. 2019, JSSAM 7.
    """
    mean, square, count = spread(shares, _numbered(clusters))
    most = len(shares) * samples
    trials = count
    if count < most and count > 1 and square > 1e-12:
        few = (1.959964 / critical(0.95, count - 1)) ** 2
        trials = max(count, min(most, round(few * mean * (1 - mean) / square)))
    return wilson(mean * trials, trials)


def spread(
    values: Sequence[float] | Array, home: Sequence[int] | Array
) -> tuple[float, float, int]:
    """Mean of (N,), its variance over clusters numbered from 0, `home` (N,) (biased), and their
    number."""
    x = np.asarray(values, float)
    sums = np.bincount(home, x - x.mean())
    return float(x.mean()), float((sums**2).sum()) / len(x) ** 2, len(sums)


def _numbered(clusters: Sequence[Hashable]) -> list[int]:
    names: dict[Hashable, int] = {}
    return [names.setdefault(c, len(names)) for c in clusters]


def normal(x: Array) -> Array:
    """The standard normal distribution function, within 1e-7."""
    return np.interp(x, _GRID, _NORMAL)


def within(c: float, freedom: int, rows: int = 2, *, reference: bool = False) -> float:
    """P(every |t| <= c) of the differences of `rows` equal means whose standard error is estimated
    with `freedom` degrees of freedom: for all pairs (Tukey), or for those with one row (Dunnett).
    Two rows: Student's t.

    Given s = chi / sqrt(freedom), all |t| <= c means that the means Z are within w = sqrt(2) c s of
    each other (K int phi(z) (Phi(z) - Phi(z - w))^(K - 1) dz), or of Z_0 (int phi(z) (Phi(z + w) -
    Phi(z - w))^(K - 1) dz); then the mean over s, both by the trapezoid rule, s on a log scale.
    Sources: Tukey 1953; Dunnett 1955, doi:10.1080/01621459.1955.10501294.
    """
    freedom = min(freedom, 10_000)  # from there on it is the normal distribution
    log_s = np.linspace(-16, min(8.0, 2.3 * math.sqrt(freedom)), 184) / math.sqrt(freedom)
    log_f = freedom * (log_s - 0.5 * np.exp(2 * log_s) + 0.5)  # the density of log s, not scaled
    log_s, f = log_s[log_f > -30], np.exp(log_f[log_f > -30])
    w = math.sqrt(2) * c * np.exp(log_s)[:, None]  # (S, 1)
    z = np.linspace(-8, 8, 81)[None]  # (1, Z)
    phi = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * (z[0, 1] - z[0, 0])
    if reference:
        inside = (phi * (normal(z + w) - normal(z - w)) ** (rows - 1)).sum(1)
    else:
        inside = rows * (phi * (normal(z) - normal(z - w)) ** (rows - 1)).sum(1)
    return float(min(1.0, (f * inside).sum() / f.sum()))


def where(rising: Callable[[float], float], level: float) -> float:
    """The x > 0 at which a rising function comes to `level`, by bisection."""
    low, high = 0.0, 1.0
    while rising(high) < level:
        low, high = high, 2 * high
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return high


@cache
def critical(level: float, freedom: int, rows: int = 2, *, reference: bool = False) -> float:
    """The c at which `within` is `level`."""
    return where(lambda c: within(c, freedom, rows, reference=reference), level)
