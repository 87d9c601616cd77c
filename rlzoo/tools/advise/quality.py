"""How good an estimator's gradient is, without the truth: from pairs of independent parts of data.

Rows are cut into n parts that share no prompt. g_i is an estimator's gradient on part i, u_i an
unbiased one's. Parts are independent, so over i != j

    E <g_i, u_j> = <E g, g*>        E <g_i, g_j> = |E g|^2

and with E|g_i|^2, hence E|g|^2 of a batch of several parts, the mean cosine of a batch's gradient
with the true one follows, but for the factor |g*| that all estimators share. No norm of a noisy
mean is taken, so noise counts against nobody twice.
"""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

DRAWS = 10_000  # of what else the qualities could be, for the chances

TOLD = 1.96  # standard errors


@dataclass(frozen=True)
class Quality:
    """Of C estimators, a (C,) each: `cosine` of a batch's gradient with the true one, its standard
    error, `behind`: the standard error of the difference to the best, `chance` of being the best.

    length: |g*|^2 of the unbiased gradient over its standard error: below 2 no direction is known.
    """

    cosine: Array
    se: Array
    behind: Array
    chance: Array
    length: float

    @property
    def best(self) -> int:
        return int(self.cosine.argmax())

    @property
    def told(self) -> Array:
        """(C,) bool: worse than the best by more than chance explains."""
        return self.cosine[self.best] - self.cosine > TOLD * self.behind


def quality(gradients: Array, unbiased: Array, batch: int) -> Quality:
    """gradients (C, n, D), unbiased (n, D) of n >= 3 independent parts; `batch`: parts that make
    the batch of a step."""
    n = len(unbiased)
    cross = np.einsum("cid,jd->cij", gradients, unbiased)
    own = np.einsum("cid,cjd->cij", gradients, gradients)
    truth = unbiased @ unbiased.T
    everyone = np.arange(n)
    rest = [np.delete(everyone, i) for i in everyone]
    whole = _cosines(cross, own, batch, everyone)
    left_out = np.stack([_cosines(cross, own, batch, keep) for keep in rest])  # (n, C)
    covariance = (n - 1) * np.cov(left_out, rowvar=False, ddof=0).reshape(len(whole), -1)
    behind = left_out[:, [whole.argmax()]] - left_out
    drawn = np.random.default_rng(0).multivariate_normal(whole, covariance, DRAWS, method="svd")
    squares = np.array([_pairs(truth, keep) for keep in (everyone, *rest)])
    length = float(np.sqrt(max(squares[0], 1e-300)))
    return Quality(
        cosine=whole / length,
        se=np.sqrt(np.diag(covariance)) / length,
        behind=np.sqrt(n - 1) * behind.std(0) / length,
        chance=np.bincount(drawn.argmax(1), minlength=len(whole)) / DRAWS,
        length=float(squares[0] / max(np.sqrt(n - 1) * squares[1:].std(), 1e-300)),
    )


def _cosines(cross: Array, own: Array, batch: int, keep: Array) -> Array:
    """(C,) E<g, g*> / sqrt(E|g|^2) of a batch's gradient g, by the parts `keep`."""
    found = np.zeros(len(cross))
    for c, (with_truth, with_own) in enumerate(zip(cross, own, strict=True)):
        each, signal = with_own.diagonal()[keep].mean(), _pairs(with_own, keep)
        square = max(signal + (each - signal) / batch, each / batch)
        if square > 0:  # an estimator may be silent on all of it
            found[c] = _pairs(with_truth, keep) / np.sqrt(square)
    return found


def _pairs(products: Array, keep: Array) -> float:
    """The mean over pairs of different parts."""
    some, n = products[np.ix_(keep, keep)], len(keep)
    return float((some.sum() - some.trace()) / (n * (n - 1)))
