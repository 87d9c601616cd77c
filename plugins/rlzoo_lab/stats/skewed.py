"""Where a paired t test is not reliable: a skewed row compared with a steadier one."""

from typing import Any

import numpy as np

from rlzoo.stats import Array

TILT, UNLIKE = 1.5, 9.5  # rows are unlike where ratio of spreads x exp(TILT x skewness) > UNLIKE
NEAR = 3.0  # spreads of the wider row between its mean and the bound that it leans on
FAR = 9.0  # a pair's own t: tails that were missed seldom make as much


def doubts(x: Any, y: Any, d: Any, bounds: tuple[float, float] | None = None) -> tuple[Any, Any]:
    """Whether rows x (..., n) and y (..., m) are too unlike for the t test of their paired
    differences d = x - y (..., k), and whether the wider row leans on a bound of the scores; bool
    (...) each.

    Few seeds of a skewed row often miss its tail, so its mean seems to be on the other side, and
    its spread is too small. Unlike: the ratio of the two spreads, times exp(1.5 g), exceeds 9.5; g
    is the sample skewness of the differences, counted positive where their long tail points against
    the sign of their mean. Leaning: the row that spreads more wins within 3 spreads of the upper
    bound, or loses within 3 of the lower. Neither where the mean difference is over 9 of its
    standard errors (unpaired: standard errors of the wider row's mean).

    Constants: chosen by simulation (tests/benchmarks/compare_errors.py), for 5 seeds and more.
    """
    x, y, d = (np.asarray(v, float) for v in (x, y, d))
    of_x, of_y = x.std(-1, ddof=1), y.std(-1, ddof=1)
    wide, steady = np.maximum(of_x, of_y), np.minimum(of_x, of_y)
    paired = d.shape[-1] > 1
    gap = d.mean(-1) if paired else x.mean(-1) - y.mean(-1)
    of_mean = d.std(-1, ddof=1) / d.shape[-1] ** 0.5 if paired else wide / x.shape[-1] ** 0.5
    small = np.abs(gap) <= FAR * of_mean
    against = -np.sign(gap) * _skewness(d)
    unlike = wide * np.exp(TILT * against) > UNLIKE * steady
    if bounds is None:
        return small & unlike, np.zeros(np.shape(gap), bool)
    first = of_x > of_y
    mean = np.where(first, x.mean(-1), y.mean(-1))
    wins = np.where(first, gap > 0, gap < 0)
    room = np.where(wins, bounds[1] - mean, mean - bounds[0])
    return small & unlike, small & (of_x != of_y) & (room < NEAR * wide)


def _skewness(d: Array) -> Array:
    """Third central moment over the cube of the standard deviation; 0 without a spread."""
    if d.shape[-1] < 3:
        return np.zeros(d.shape[:-1])
    off = d - d.mean(-1, keepdims=True)
    spread = np.sqrt((off**2).mean(-1))
    real = spread > 1e-12 * np.maximum(1.0, np.abs(d).max(-1))
    return np.where(real, (off**3).mean(-1) / np.where(real, spread, 1.0) ** 3, 0.0)
