"""How much of the true gradient an estimator's holds, without the truth: by pairs of parts of data.

Rows are cut into n parts that share no prompt: g_i is an estimator's gradient on part i, u_i an
unbiased one's. Parts are independent, so over i != j  E <g_i, u_j> = <E g, g*>  and
E <g_i, g_j> = |E g|^2;  with E |g_i|^2 the mean cosine of a batch of several parts with g* follows,
but for the factor |g*| that all estimators share. A short pilot says little: what a made-up world
says (`standin`) is the prior, which weighs the less the more the pilot has seen.
"""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

SPREAD = 0.1  # how far a task's cosine may lie from a made-up world's: one standard deviation


@dataclass(frozen=True)
class Advice:
    """Of C estimators, (C,) each: cosines of a batch's gradient with the true one by the world, by
    the pilot (with its standard error) and by both; `behind_se`: of the difference to the best.

    direction: |g*|^2 by the pilot over its standard error; below 2 it has not seen the direction.
    """

    world: Array
    pilot: Array
    pilot_se: Array
    both: Array
    behind_se: Array
    direction: float


def weigh(world: Array, gradients: Array, unbiased: Array, batch: int) -> Advice:
    """world (C,) cosines; gradients (C, n, D), unbiased (n, D) of n >= 3 independent parts;
    `batch`: parts that make the batch of a step."""
    cross = np.einsum("cid,jd->cij", gradients, unbiased)
    own = np.einsum("cid,cjd->cij", gradients, gradients)
    truth, every = unbiased @ unbiased.T, np.arange(len(unbiased))
    rest = [np.delete(every, i) for i in every]
    found = _cosines(cross, own, batch, every)
    covariance = _jackknife([_cosines(cross, own, batch, keep) for keep in rest])
    # |g*|, by which the pilot's products are cosines: what fits the world's best. Where noise gave
    # it the wrong sign it is next to nothing, and so is the pilot's weight.
    length = max(found @ world / max(world @ world, 1e-12), 1e-9 + 1e-3 * np.abs(found).max())
    prior = SPREAD**2 * np.eye(len(world))
    gain = prior @ np.linalg.inv(prior + covariance / length**2)
    both, left = world + gain @ (found / length - world), prior - gain @ prior
    best = both.argmax()
    behind = left.diagonal() + left[best, best] - left[best] - left[:, best]
    return Advice(
        world=world,
        pilot=found / length,
        pilot_se=np.sqrt(covariance.diagonal()) / length,
        both=both,
        behind_se=np.sqrt(behind.clip(min=0)),
        direction=_pairs(truth, every)
        / max(float(_jackknife([[_pairs(truth, keep)] for keep in rest])[0, 0]) ** 0.5, 1e-300),
    )


def _jackknife(left_out: list) -> Array:
    """(C, C) the covariance of a statistic (C,) from its values with one part left out in turn.
    Source: Efron and Stein 1981, doi:10.1214/aos/1176345462."""
    values = np.array(left_out)
    apart: Array = values - values.mean(0)
    return (len(values) - 1) / len(values) * apart.T @ apart


def _cosines(cross: Array, own: Array, batch: int, keep: Array) -> Array:
    """(C,) E <g, g*> / sqrt(E |g|^2) of a batch's gradient g, by the parts `keep`; 0 of a silent
    one."""
    found = np.zeros(len(cross))
    for c, (with_truth, with_own) in enumerate(zip(cross, own, strict=True)):
        each, signal = with_own.diagonal()[keep].mean(), _pairs(with_own, keep)
        square = max(signal + (each - signal) / batch, each / batch)
        found[c] = _pairs(with_truth, keep) / np.sqrt(square) if square > 0 else 0
    return found


def _pairs(products: Array, keep: Array) -> float:
    """The mean over pairs of different parts."""
    some, n = products[np.ix_(keep, keep)], len(keep)
    return float((some.sum() - some.trace()) / (n * (n - 1)))
