"""Compares advantages with two references whose errors are independent of each other."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlzoo_lab.diagnose.branch_rollouts import Reference
from rlzoo_lab.stats import jackknife_se, student_quantile


def jackknife(
    statistic: Callable[..., float], columns: Sequence[np.ndarray], clusters: np.ndarray
) -> tuple[float | None, float | None]:
    """A statistic of columns (N,) and its jackknife error, which leaves out one prompt at a time.

    None if it is undefined, or if there are fewer than two prompts.
    """
    value = statistic(*columns)
    if not math.isfinite(value):
        return None, None
    ids = np.unique(clusters)
    if len(ids) < 2:
        return value, None
    left = [statistic(*(c[clusters != i] for c in columns)) for i in ids]
    se = float(jackknife_se(left))
    return value, se if math.isfinite(se) else None


def squared_error(a: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """The mean of (a - A1)(a - A2): an unbiased estimate of the mean of (a - A)^2, if A1 and A2 are
    A plus errors that are independent of each other and of a."""
    return float(((a - first) * (a - second)).mean())


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    x, y = a - a.mean(), b - b.mean()
    size = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size > 1e-12 else math.nan


def _sign(a: np.ndarray, truth: np.ndarray) -> float:
    weight = np.abs(truth)
    agree = np.where(a == 0, 0.5, a * truth > 0)
    return float((weight * agree).sum() / weight.sum()) if weight.sum() > 0 else math.nan


def against(
    a: np.ndarray, first: np.ndarray, second: np.ndarray, clusters: np.ndarray
) -> dict[str, Any]:
    """Compare advantages (N,) with two references with independent errors."""
    middle = (first + second) / 2
    numbers: dict[str, Any] = {}
    for name, statistic, columns in (
        ("bias", lambda x, y: float((x - y).mean()), (a, middle)),
        ("correlation", _correlation, (a, middle)),
        ("agreement", _sign, (a, middle)),
        ("squared_error", squared_error, (a, first, second)),
    ):
        numbers[name], numbers[f"{name}_se"] = jackknife(statistic, columns, clusters)
    numbers["bias_interval"] = None
    if numbers["bias_se"] is not None:
        half = student_quantile(0.975, len(np.unique(clusters)) - 1) * numbers["bias_se"]
        numbers["bias_interval"] = [numbers["bias"] - half, numbers["bias"] + half]
    return numbers


def reference_quality(reference: Reference, clusters: np.ndarray) -> dict[str, Any]:
    """How good the reference is: its noise, the size of the truth, and the agreement of its
    halves."""
    first, second = reference.first, reference.second
    size, se = jackknife(lambda x, y: float((x * y).mean()), (first, second), clusters)
    r = _correlation(first, second)
    known = math.isfinite(r)
    return {
        "truth": size,
        "truth_se": se,
        "noise": float(((first - second) ** 2).mean() / 4),
        "halves_correlation": r if known else None,
        "best_correlation": math.sqrt(max(0.0, 2 * r / (1 + r))) if known and r > -1 else None,
    }


def critic_against(
    values: np.ndarray, reference: Reference, clusters: np.ndarray, at: np.ndarray
) -> dict[str, Any]:
    """Compare the critic's V with V^ and with the returns G, one per branch.

    at: (N,) the position of each state. The share of G explained by a line in the position requires
        no critic.
    """
    half = reference.here.shape[1] // 2
    first, second = reference.here[:, :half].mean(1), reference.here[:, half:].mean(1)
    low, high = np.array([reference.interval(scores) for scores in reference.here]).T
    inside = int(((low <= values) & (values <= high)).sum())
    numbers = {**against(values, first, second, clusters), "inside": inside}
    statistics: dict[str, tuple[Callable[..., float], tuple[np.ndarray, ...]]] = {
        "explained_variance": (_explained, (values, reference.here)),
        "by_position": (_explained_by_line, (at, reference.here)),
        "ceiling": (_ceiling, (first, second, reference.here)),
    }
    for name, (statistic, columns) in statistics.items():
        numbers[name], numbers[f"{name}_se"] = jackknife(statistic, columns, clusters)
    return numbers


def _explained(values: np.ndarray, returns: np.ndarray) -> float:
    """1 - Var(G - V) / Var(G) of V (N,) and the returns (N, K) of its states; 0 if G is
    constant."""
    spread = float(returns.var())
    return 1 - float((returns - values[:, None]).var()) / spread if spread > 1e-12 else 0.0


def _explained_by_line(at: np.ndarray, returns: np.ndarray) -> float:
    place = at - at.mean()
    slope = float((place * returns.mean(1)).sum() / max((place * place).sum(), 1e-12))
    return _explained(slope * place, returns)


def _ceiling(first: np.ndarray, second: np.ndarray, returns: np.ndarray) -> float:
    """Var(V^pi) / Var(G), the most that any V explains: Var(V^pi) is the covariance of two halves'
    means, whose errors are independent."""
    both = (first - first.mean()) * (second - second.mean())
    return float(both.mean() / max(returns.var(), 1e-12))
