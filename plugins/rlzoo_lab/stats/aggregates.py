"""Interquartile means, P(X > Y) of many runs, as in rliable.

`scores` is an array (seeds,) or (seeds, tasks): one number a run. Tasks are strata.
"""

from typing import Any

import numpy as np

from rlzoo.stats import ALPHA, Array, Interval

REPETITIONS = 10_000


def iqm(scores: Any) -> float:
    """The interquartile mean: the mean of the middle half. It leaves out a quarter of the runs,
    rounded down, at either end.

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
