"""Bias and variance of any advantage estimator, compared with exact values.

    b(s, a) = E[A^ | s, a] - A(s, a)        b_perp = b - sum_a pi(a|s) b

With sum aggregation the gradient of a batch is the mean over rows of sum_t A^_t d log pi(a_t|s_t),
and in the logits E[g^] - g* = d(s) pi(a|s) b_perp(s, a): a baseline's contribution to b is
harmless, so b_perp is the bias that matters.

A recipe's own gradient differs: its aggregation weights tokens, for example by the length of their
row, and its whitening subtracts a mean (`means.Loss`). `cosine`, `gain` and the results of sampled
batches belong to that gradient, and `own_cosine` to the estimator only.

The mean over A^ is exact: one call on every multiset of one row or G rows that differ for the
estimator (in an outcome and a length, say). An estimator that couples the batch, or distinguishes
too many rows, is measured only in drawn batches.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlzoo.mdp.noise import generator
from rlzoo_lab.kit.oracle.means import means
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld

STEP_KL = 0.01  # nats per response, of the steps that are compared


@dataclass
class Report:
    """The measurements of one estimator; None if its mean cannot be enumerated. Means are over
    tokens as visited.

    sign: that of A^ minus its mean in the state. relative_variance: over scale squared; None if not
    scale. cosine, gain: for the gradient of the recipe's loss; own_cosine, scale, snr:
    with equal weights of tokens. true_gain: that of the true gradient itself. Gains are shares of
    the gain of a step along the natural gradient.
    """

    true_gain: float
    batches: dict[int, dict[str, float]]
    b_perp2: float | None = None
    bias2: float | None = None
    variance: float | None = None
    relative_variance: float | None = None
    squared_error: float | None = None
    sign: float | None = None
    own_cosine: float | None = None
    cosine: float | None = None
    scale: float | None = None
    snr: float | None = None
    gain: float | None = None


def truth(subject: EstimatorInWorld) -> Tensor:
    """g* (S, V) in the states that rows reach."""
    return torch.where(_reached(subject), subject.oracle.gradient(), 0)


def b_perp(subject: EstimatorInWorld, mean: Tensor) -> Tensor:
    """b - sum_a pi b (S, V) of E[A^ | s, a], 0 in states that no row reaches."""
    b = mean - subject.oracle.advantages
    return torch.where(_reached(subject), b - (subject.oracle.pi * b).sum(-1, keepdim=True), 0)


def gradient(subject: EstimatorInWorld, mean: Tensor) -> Tensor:
    """E[g^] (S, V) per row: of `Means.mean` with sum aggregation, of `Means.pull` as the recipe's
    loss weighs tokens, up to its length."""
    o = subject.oracle
    centred = mean - (o.pi * mean).sum(-1, keepdim=True)
    return torch.where(_reached(subject), o.visits[:, None] * o.pi * centred, 0)


def _reached(subject: EstimatorInWorld) -> Tensor:
    """(S, 1): all states but those after the length at which rows are cut."""
    return subject.episodes.reached(subject.oracle.tree.states)[:, None]


def report(
    subject: EstimatorInWorld, *, sizes: tuple[int, ...] = (), kl: float = STEP_KL
) -> Report:
    """Every number of one estimator. kl: nats per response of the steps that are compared."""
    o, a, star, reached = (
        subject.oracle, subject.oracle.advantages, truth(subject), _reached(subject)
    )  # fmt: skip
    natural = natural_gradient(subject)
    (true_gain,) = _gain(o, star[None], natural, kl)
    found = Report(true_gain, _batches(subject, sizes, star, kl) if sizes else {})
    if (estimated := means(subject)) is None:
        return found

    def cosine(g: Tensor) -> float:
        return float(((g * star).sum() / (g.norm() * star.norm()).clamp(min=1e-300)).clamp(-1, 1))

    visits = torch.where(reached, o.visits[:, None] * o.pi, 0)
    weight = visits / visits.sum()
    g, mine = (gradient(subject, mean) for mean in (estimated.mean, estimated.pull))
    found.b_perp2 = float((weight * b_perp(subject, estimated.mean).square()).sum())
    found.bias2 = float((weight * torch.where(reached, estimated.mean - a, 0).square()).sum())
    squared = estimated.square - 2 * a * estimated.mean + a.square()
    found.squared_error = float((weight * squared).sum())
    found.variance = found.squared_error - found.bias2
    right = (1 + a.sign() * estimated.sign) / 2
    stake = weight * a.abs()
    found.sign = float((stake * right).sum() / stake.sum().clamp(min=1e-300))
    found.own_cosine, found.cosine = cosine(g), cosine(mine)
    found.scale = float((g * star).sum() / star.square().sum().clamp(min=1e-300))
    if abs(found.scale) > 1e-9:
        found.relative_variance = found.variance / found.scale**2
    # For one row: its states are distinct, so the squared norm is a sum over its tokens.
    norm = 1 - 2 * o.pi + o.pi.square().sum(-1, keepdim=True)
    total, signal = float((visits * estimated.square * norm).sum()), float(g.square().sum())
    found.snr = signal / max(total - signal, 1e-300)
    (found.gain,) = _gain(o, mine[None], natural, kl)
    return found


def natural_gradient(subject: EstimatorInWorld) -> Tensor:
    """(S, V) A itself: to first order, it gains most for its KL of all directions."""
    return torch.where(_reached(subject), subject.oracle.advantages, 0)


BATCHES = 256  # of a size, at most
STEPS = 32  # of these that a step is taken along


def _batches(
    subject: EstimatorInWorld, sizes: tuple[int, ...], star: Tensor, kl: float
) -> dict[int, dict[str, float]]:
    """For drawn batches of each size: the mean cosine with g*, and the mean gain of a step."""
    rows, groups = _pool(subject, max(sizes))
    coupled, natural = subject.component.couples == "batch", natural_gradient(subject)
    a = None if coupled else subject.among(subject.columns, rows, groups)
    batches = {}
    for size in sizes:
        count = min(BATCHES, len(rows) // size)
        taken = rows[: count * size]
        if a is None:
            blocks, ids = taken.view(count, size), torch.arange(size) // subject.samples
            estimates = torch.cat([subject.among(subject.columns, b, ids) for b in blocks])
        else:
            estimates = a[: count * size]
        if subject.whiten != "none":
            batch = torch.arange(count * size) // size
            alike = batch if subject.whiten == "batch" else groups[: count * size]
            estimates = subject.whitened(estimates, taken, alike)
        g = _sampled(subject, taken, subject.weight[taken] * estimates, count)
        dots = (g * star).sum((-1, -2))
        cosines = dots / (g.norm(dim=(-1, -2)) * star.norm()).clamp(min=1e-300)
        gains = torch.tensor(_gain(subject.oracle, g[:STEPS], natural, kl), dtype=torch.float64)
        batches[size] = {
            "cosine": float(cosines.mean()),
            "cosine_se": _se(cosines),
            "gain": float(gains.mean()),
            "gain_se": _se(gains),
        }
    return batches


def _se(x: Tensor) -> float:
    return float(x.std() / math.sqrt(len(x))) if len(x) > 1 else 0.0


POOL = 65_536  # rows drawn for the batches


def _pool(subject: EstimatorInWorld, most: int) -> tuple[Tensor, Tensor]:
    """Rows drawn in groups of one prompt, the same for every estimator of a world; (N,), (N,)."""
    draw = generator(subject.seed, "diagnose/pool")
    size = subject.samples
    count = max(POOL, 8 * most) // size
    e = subject.episodes
    prompt = torch.randint(subject.oracle.tree.prompts, (count,), generator=draw)
    rows = torch.empty(count, size, dtype=torch.long)
    for i in range(subject.oracle.tree.prompts):
        groups, members = (prompt == i).nonzero()[:, 0], (e.prompt == i).nonzero()[:, 0]
        cdf = e.probability[members].cumsum(0)
        u = torch.rand(len(groups), size, generator=draw, dtype=torch.float64) * cdf[-1]
        rows[groups] = members[torch.searchsorted(cdf, u, right=True).clamp(max=len(members) - 1)]
    return rows.flatten(), torch.arange(count).repeat_interleave(size)


def _sampled(subject: EstimatorInWorld, rows: Tensor, a: Tensor, count: int) -> Tensor:
    """(count, S, V) the gradients of `count` batches of equal size."""
    o, e = subject.oracle, subject.episodes
    v, size = o.tree.vocabulary, len(rows) // count
    on = e.mask[rows]
    batch = torch.arange(count).repeat_interleave(size)[:, None].expand_as(on)
    cell = (batch * o.tree.states + e.states[rows]) * v + e.actions[rows]
    flat = torch.zeros(count * o.tree.states * v, dtype=torch.float64)
    flat.index_add_(0, cell[on], a[on])
    chosen = flat.view(count, o.tree.states, v) / size
    return chosen - o.pi * chosen.sum(-1, keepdim=True)


def _gain(oracle: Oracle, directions: Tensor, natural: Tensor, kl: float) -> list[float]:
    """What steps along (N, S, V), each as long as KL(old || new) = kl allows, gain of the
    objective, as a share of what a step along the natural gradient gains."""
    both = torch.cat([natural[None], directions])
    gains = oracle.improvement(oracle.logits + matched_step(oracle, both, kl))
    return (gains[1:] / gains[0].clamp(min=1e-300)).tolist()


def matched_step(oracle: Oracle, directions: Tensor, kl: float) -> Tensor:
    """Directions (N, S, V) scaled so that KL(policy || policy + step) = kl per response; a
    direction of zeros stays."""
    length = directions.norm(dim=(-1, -2), keepdim=True)
    unit = directions / length.clamp(min=1e-300)
    # KL grows about as the square of the step: a few corrections by the root find it.
    size = torch.ones_like(length)
    for _ in range(20):
        reached = oracle.kl_to(oracle.logits + size * unit)[:, None, None]
        ratio = (kl / reached.clamp(min=1e-12)).sqrt()
        if bool(((ratio - 1).abs() < 1e-7)[length > 1e-14].all()):
            break
        size = size * ratio.clamp(0.1, 10)
    return torch.where(length > 1e-14, size * unit, 0)
