"""Student's t, Tukey's range and Dunnett's t by quadrature, and intervals that rest on them.

scipy has the first two, and would be a dependency for these alone; tests hold them to its values.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from rlzoo.stats.intervals import ALPHA, Array, Interval

_GRID = np.linspace(-9, 9, 18_001)


@cache
def _normal_table() -> Array:
    return np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in _GRID])


def normal(x: Array) -> Array:
    """The standard normal distribution function, within 1e-7."""
    return np.interp(x, _GRID, _normal_table())


def within(c: float, freedom: int, rows: int = 2, *, reference: bool = False) -> float:
    """P(every |t| <= c) of the differences of `rows` equal means whose standard error is estimated
    with `freedom` degrees of freedom: of all pairs (Tukey), or of those with one row (Dunnett).
    Two rows: Student's t.

    Given s = chi / sqrt(freedom), all |t| <= c means that the means Z lie within w = sqrt(2) c s of
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


def student_quantile(p: float, freedom: int) -> float:
    """Quantile of Student's t, within 1e-5 of itself for p up to .99999."""
    c = critical(abs(2 * p - 1), freedom)
    return c if p >= 0.5 else -c


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
