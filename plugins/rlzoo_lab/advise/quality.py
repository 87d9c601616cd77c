"""The cosine of an estimator's gradient with the unknown true one, from pairs of parts of the data.

The rows are split into n parts without common prompts: g_i is an estimator's gradient on part i,
u_i an unbiased estimator's. Parts are independent, so over i != j  E <g_i, u_j> = <E g, g*>  and E
<g_i, g_j> = |E g|^2;  with E |g_i|^2, these give the mean cosine of a batch of several parts with
g*, except for the factor |g*| that all estimators share. A short pilot gives little information, so
an artificial world (`standin`) provides a prior, whose weight falls as the pilot grows.
"""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

SPREAD = 0.1  # how far a task's cosine may be from a made-up world's: one standard deviation


@dataclass(frozen=True)
class Advice:
    """For C estimators, (C,) each: cosines of a batch's gradient with the true one from the world,
    from the pilot (with its standard error) and from both; `behind_se`: standard error of the
    difference from the best.

    direction: |g*|^2 in the pilot divided by its standard error; below 2, the direction is unknown.
    """

    world: Array
    pilot: Array
    pilot_se: Array
    both: Array
    behind_se: Array
    direction: float


def weigh(world: Array, gradients: Array, unbiased: Array, batch: int) -> Advice:
    """world (C,) cosines; gradients (C, n, D), unbiased (n, D) of n >= 3 independent parts;
    `batch`: the number of parts in the batch of a step."""
    cross = np.einsum("cid,jd->cij", gradients, unbiased)
    own = np.einsum("cid,cjd->cij", gradients, gradients)
    found, covariance = _jackknife(_cosines(cross, own, batch))
    squares, spread = _jackknife(_pairs(unbiased @ unbiased.T)[:, None])
    # |g*|, by which the pilot's products are cosines: what fits the world's best. Where noise gave
    # it the wrong sign it is next to nothing, and so is the pilot's weight.
    length = max(found @ world / max(world @ world, 1e-12), 1e-9 + 1e-3 * np.abs(found).max())
    noise = covariance / length**2 + np.diag(np.where(found == 0, 1e9, 0))  # these show nothing
    prior = SPREAD**2 * np.eye(len(world))
    gain = prior @ np.linalg.inv(prior + noise)
    both, left = world + gain @ (found / length - world), prior - gain @ prior
    best = both.argmax()
    behind = left.diagonal() + left[best, best] - left[best] - left[:, best]
    return Advice(
        world=world,
        pilot=found / length,
        pilot_se=np.sqrt(covariance.diagonal()) / length,
        both=both,
        behind_se=np.sqrt(behind.clip(min=0)),
        direction=float(squares[0] / max(spread[0, 0], 1e-300) ** 0.5),
    )


def _jackknife(values: Array) -> tuple[Array, Array]:
    """A statistic (C,) and its covariance (C, C), from values (1 + n, C): for all parts, and with
    one left out in turn.  Source: Efron and Stein 1981, doi:10.1214/aos/1176345462."""
    apart = values[1:] - values[1:].mean(0)
    return values[0], (len(apart) - 1) / len(apart) * apart.T @ apart


def _cosines(cross: Array, own: Array, batch: int) -> Array:
    """(1 + n, C) E <g, g*> / sqrt(E |g|^2) of a batch's gradient g, by all parts and all but one;
    0 of a silent one."""
    n = cross.shape[-1]
    squares = own.diagonal(axis1=1, axis2=2)  # (C, n)
    every = squares.mean(1)
    each = np.concatenate([every[None], (every - squares.T / n) * n / (n - 1)])
    signal = _pairs(own)
    length = np.sqrt(np.maximum(signal + (each - signal) / batch, each / batch))
    return _pairs(cross) / np.where(length > 0, length, 1)


def _pairs(products: Array) -> Array:
    """(1 + n, ...) of products (..., n, n): the mean over pairs of different parts, of all of them
    and with one left out in turn."""
    n = products.shape[-1]
    diagonal = products.diagonal(axis1=-2, axis2=-1)
    whole = products.sum((-2, -1)) - diagonal.sum(-1)
    without = whole[..., None] - products.sum(-1) - products.sum(-2) + 2 * diagonal
    means = np.moveaxis(without, -1, 0) / ((n - 1) * (n - 2))
    return np.concatenate([whole[None] / (n * (n - 1)), means])
