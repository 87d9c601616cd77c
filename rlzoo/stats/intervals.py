"""Intervals of shares and means, and numbers of one curve."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray

ALPHA = 0.05


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
