"""Rows paired by seed: which differ, and what N seeds can detect."""

import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlzoo.stats import ALPHA, Array, Interval, critical, normal, where, within
from rlzoo_lab.stats.signs import smallest_p

POWER = 0.8

OWN = 0.03  # level at which a pair's own t test has to agree, where there are more pairs


@dataclass(frozen=True)
class Contrast:
    """Row a minus row b over the n seeds that both have: mean and standard deviation of the
    differences; p and 95 % interval hold for all pairs of the family together. The interval is
    None if there is no spread to judge by."""

    n: int
    mean: float
    sd: float
    p: float
    interval: Interval | None

    def __neg__(self) -> "Contrast":
        return Contrast(self.n, -self.mean, self.sd, self.p, turned(self.interval))


def turned(interval: Interval | None) -> Interval | None:
    """That of b - a, from that of a - b."""
    return interval and Interval(-interval.high, -interval.low)


@dataclass(frozen=True)
class Block:
    """Comparisons of rows paired by seed. `sd`: standard deviation of a run without its seed's and
    its row's mean, estimated with `freedom` degrees of freedom."""

    sd: float
    freedom: int
    contrasts: dict[tuple[int, int], Contrast]


def block(table: Any, reference: int | None = None) -> Block:
    """Differences of rows, `table` (seeds, rows), NaN for a missing run: for all pairs (a, b),
    a < b, or for each row a with the row `reference`, (a, reference).

    score = seed + row + noise. The noise of all runs together makes one standard deviation, so that
    few seeds go far: Tukey's studentised range bounds the error over all pairs, Dunnett's t over
    those with a reference. Were some rows noisier than others, that would err in up to a quarter
    of the comparisons; therefore a pair is judged by the larger of this standard error and its own,
    and its own paired t test must agree at 0.03. Two rows: a paired t test.

    It supposes noise that is independent of seed and row, and differences that are about normal.
    """
    scores = np.asarray(table, float)
    rows = scores.shape[1]
    sd, freedom = _residual(scores)
    if reference is None:
        pairs = list(itertools.combinations(range(rows), 2))
    else:
        pairs = [(a, reference) for a in range(rows) if a != reference]
    found = {}
    for a, b in pairs:
        d = scores[:, a] - scores[:, b]
        d = d[np.isfinite(d)]
        if len(d):
            found[a, b] = _contrast(d, sd, freedom, rows, reference is not None)
    return Block(sd, freedom, found)


def _contrast(d: Array, sd: float, freedom: int, rows: int, reference: bool) -> Contrast:
    n, mean = len(d), float(d.mean())
    own = float(d.std(ddof=1)) if n > 1 else math.nan
    tiny = 1e-12 * max(1.0, float(np.abs(d).max()))
    if n < 2 or freedom < 1:
        return Contrast(n, mean, own, 1.0, None)
    se = max(math.sqrt(2) * sd, own) / math.sqrt(n)
    if se <= tiny:  # nothing to judge by but signs
        return Contrast(n, mean, own, 1.0 if abs(mean) <= tiny else smallest_p(n), None)
    p = 1 - within(abs(mean) / se, freedom, rows, reference=reference)
    half = critical(1 - ALPHA, freedom, rows, reference=reference) * se
    if rows > 2 and own > tiny:
        alone = own / math.sqrt(n)
        p = max(p, ALPHA / OWN * (1 - within(abs(mean) / alone, n - 1)))
        half = max(half, critical(1 - OWN, n - 1) * alone)
    return Contrast(n, mean, own, min(1.0, p), Interval(mean - half, mean + half))


def _residual(scores: Array) -> tuple[float, int]:
    """Standard deviation about seed and row, by least squares, and its degrees of freedom."""
    there = np.isfinite(scores)
    which_seed, which_row = there.nonzero()
    design = np.concatenate(
        [np.eye(scores.shape[0])[which_seed], np.eye(scores.shape[1])[which_row]], 1
    )
    y = scores[there]
    if not len(y):
        return math.nan, 0
    fit, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    freedom = len(y) - int(rank)
    rest = float(((y - design @ fit) ** 2).sum())
    return (math.sqrt(rest / freedom) if freedom else math.nan), freedom


@cache
def _draws(freedom: int, rest: int) -> tuple[Array, Array]:
    """Estimated over true standard deviation, from a single pair and from all rows: 10,000 draws
    each."""
    rng = np.random.default_rng(0)
    alone = rng.chisquare(freedom, 10_000)
    more = rng.chisquare(rest, 10_000) if rest else 0.0
    return np.sqrt(alone / freedom), np.sqrt((alone + more) / (freedom + rest))


def power(effect: float, n: int, rows: int = 2, *, reference: bool = False) -> float:
    """How often `block` shows a true difference of `effect` standard deviations of a paired
    difference, with n seeds, where all rows are equally noisy; over 10,000 draws of the spread."""
    if n < 2:
        return 0.0
    alone, together = _draws(n - 1, (n - 1) * (rows - 2))
    c = critical(1 - ALPHA, (n - 1) * (rows - 1), rows, reference=reference)
    need = c * np.maximum(alone, together)
    if rows > 2:
        need = np.maximum(need, critical(1 - OWN, n - 1) * alone)
    at = effect * math.sqrt(n)
    return float((normal(at - need) + normal(-at - need)).mean())


@cache
def _detectable(n: int, rows: int, reference: bool) -> float:
    return where(lambda effect: power(effect, n, rows, reference=reference), POWER)


def detectable(sd: float, n: int, rows: int = 2, *, reference: bool = False) -> float | None:
    """The true difference that n seeds of `rows` rows show in 80 % of repetitions, where paired
    differences have the standard deviation `sd`; None for fewer than two seeds."""
    return None if n < 2 else sd * _detectable(n, rows, reference)


def spread_range(n: int) -> tuple[float, float]:
    """The factor on the standard deviation seen in n values for the 80 % interval of
    the true one, by chi-square."""
    seen = np.quantile(_draws(n - 1, 0)[0], (0.9, 0.1))
    return float(1 / seen[0]), float(1 / seen[1])


def welch(x: Any, y: Any, comparisons: int = 1) -> Contrast:
    """Mean of x (n,) minus that of y (m,), runs that share no seed; p and interval by Bonferroni.
    `n` is the smaller number, `sd` that of a pair whose mean would be as uncertain.

    Source: Welch 1947, doi:10.1093/biomet/34.1-2.28.
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    n, mean = min(len(a), len(b)), float(a.mean() - b.mean())
    if n < 2:
        return Contrast(n, mean, math.nan, 1.0, None)
    u, v = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    se = math.sqrt(u + v)
    if se <= 1e-12 * max(1.0, abs(mean)):
        return Contrast(n, mean, 0.0, 1.0, None)
    freedom = max(1, int((u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1))))
    p = min(1.0, comparisons * (1 - within(abs(mean) / se, freedom)))
    half = critical(1 - ALPHA / comparisons, freedom) * se
    return Contrast(n, mean, se * math.sqrt(n), p, Interval(mean - half, mean + half))


LARGE = 3.0  # standard deviations of a paired difference: large enough that a study should show it


def seeds_to_show(rows: int, effect: float = LARGE, *, reference: bool = False) -> int:
    """The fewest seeds that show a difference of `effect` standard deviations in 80 % of
    repetitions."""
    return next(n for n in itertools.count(2) if _detectable(n, rows, reference) <= effect)
