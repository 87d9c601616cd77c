"""Sign-flip tests of paired differences, and Holm's correction."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlzoo.stats import Array, Interval

EXACT_SEEDS = 14  # up to here all 2^n sign flips are tried, beyond a sample of as many


@dataclass(frozen=True)
class Paired:
    """The differences of n paired runs. From the least to the largest is the widest interval that a
    sign-flip test gives, exact at its own `level`: 75 % of three pairs, 94 % of five."""

    n: int
    p: float
    widest: Interval | None = None

    @property
    def level(self) -> float:
        """The confidence level of the widest interval."""
        return 1 - 2 / 2**self.n


def paired(differences: Any) -> Paired:
    """Sign-flip test of a mean difference.

    Were the two configurations the same, each pair's difference could as well have had the other
    sign: p is the share of all 2^n sign patterns whose mean is at least as far from 0. Exact to 14
    pairs; beyond, 2^14 patterns drawn at random, closed under negation. It supposes differences
    that are symmetric about their mean.

    Source: Fisher 1935; Hartigan 1969, doi:10.1080/01621459.1969.10501057.
    """
    d = np.asarray(differences, float)
    if len(d) == 0:
        return Paired(0, 1.0)
    flips = _flips(len(d))
    # sum of s*d = total - 2 * (sum over the flipped pairs)
    slack = 1e-12 * float(np.abs(d).sum())
    extreme = np.abs(d.sum() - 2 * flips @ d) >= abs(d.sum()) - slack
    p = (1 + int(extreme.sum())) / (1 + len(flips))  # and the data as they are
    return Paired(len(d), p, Interval(float(d.min()), float(d.max())) if len(d) > 1 else None)


@cache
def _flips(n: int) -> Array:
    """Which pairs a pattern flips, (patterns - 1, n) of 0 and 1."""
    if n <= EXACT_SEEDS:
        codes = np.arange(1, 2**n)
        flips = (codes[:, None] >> np.arange(n)) & 1
    else:
        half = np.random.default_rng(n).integers(2, size=(2 ** (EXACT_SEEDS - 1) - 1, n))
        half = half[(half.sum(1) > 0) & (half.sum(1) < n)]
        flips = np.concatenate([half, 1 - half, np.ones((1, n), half.dtype)])
    return flips.astype(float)


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
