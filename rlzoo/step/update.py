"""The update: policy and value losses over epochs x mini-batches x micro-batches.

An aggregation weights the tokens of a whole mini-batch before it is split into micro-batches, so
the split does not change the gradient.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlzoo.accel.engine import Forward, backward, serves
from rlzoo.errors import ComponentError
from rlzoo.lm.models import Models
from rlzoo.mdp import noise
from rlzoo.mdp.batch import Batch, take
from rlzoo.ops import on_host, pick
from rlzoo.plugin.border import Bound
from rlzoo.plugin.call import together
from rlzoo.recipe.plan import Plan
from rlzoo.runs.metrics import FIRST_RATIO_GAP, METRICS
from rlzoo.step.columns import loss_mask
from rlzoo.step.optimizer import Sums, Totals, step_optimizers

OURS = frozenset(metric.name for metric in METRICS)


@dataclass
class Experience:
    """A batch, ready for the update.

    log_prob_gap: the distance of the sampling distribution from the policy, in nats.
    forward: the update's forward pass, with gradient, where the batch's columns were read off it.
    seconds, tokens: the time and generated tokens of each phase: `gen`, `columns`, `adv`.
    """

    batch: Batch
    log_prob_gap: float
    forward: Forward | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def release(self) -> None:
        """Free the forward pass; the update computes it again."""
        self.forward = None


def update(
    models: Models,
    experience: Experience,
    optimizers: Mapping[str, torch.optim.Optimizer],
    step: int,
    kl_coef: float,
) -> dict[str, float]:
    """All optimizer steps on one batch; returns the means of their metrics."""
    plan, batch = models.plan, experience.batch
    mask = loss_mask(plan, batch)
    totals: Totals = defaultdict(list)
    for names in _in_turn(models, step):
        epochs, count = plan.passes[names[0]]
        for epoch in range(epochs):
            generator = noise.generator(models.seed, f"shuffle/{epoch}", step)
            parts = _minibatches(models, batch, count, generator)
            if experience.forward is not None:  # one update on all rows, in those passes' order
                parts = [torch.arange(batch.rows)]
            for part in parts:
                rows = {**batch.select(part), "response_mask": pick(mask, part)}
                with together() as checks:
                    attempt = partial(_gradients, experience, models, rows, kl_coef, names)
                    sums = models.passes.retry(attempt, experience.release)
                    step_optimizers(models, optimizers, sums, checks, totals, names)
    experience.release()
    if FIRST_RATIO_GAP in totals:  # later steps move the policy away from the one that sampled
        del totals[FIRST_RATIO_GAP][1:]
    added = ("train/skipped",)
    return {k: sum(v) if k in added else sum(v) / len(v) for k, v in sorted(totals.items())}


def _gradients(experience: Experience, *of: Any) -> Sums:
    """`gradients`, by the forward passes that are still held when this is called."""
    return gradients(*of, forward=experience.forward)


def _in_turn(models: Models, step: int) -> list[tuple[str, ...]]:
    """The networks that are trained, by name: those on one trunk in one pass, others one after the
    other, so that gradients and activations of one are held at a time: the critic first, whose
    passes may be there already. An update of one changes nothing that the other learns from, so
    each has epochs and mini-batches of its own."""
    names = [n for n in models.networks() if n != "actor" or step >= models.plan.actor_from]
    return [tuple(names)] if models.shared else [(name,) for name in reversed(names)]


def _minibatches(
    models: Models, batch: Batch, parts: int, generator: torch.Generator
) -> list[Tensor]:
    """Rows of each mini-batch (the host's), shuffled; whole groups where the policy loss looks at
    groups."""
    if "group_ids" not in models.plan.policy_loss.needs:
        return list(torch.randperm(batch.rows, generator=generator).tensor_split(parts))
    group_ids = on_host(batch["group_ids"])
    groups = group_ids.unique()
    groups = groups[torch.randperm(len(groups), generator=generator)]
    return [
        torch.isin(group_ids, some).nonzero()[:, 0]
        for some in groups.tensor_split(parts)
        if len(some)
    ]


def gradients(
    models: Models,
    rows: Mapping[str, Any],
    kl_coef: float,
    names: tuple[str, ...] = ("actor", "critic"),
    *,
    forward: Forward | None = None,
) -> Sums:
    """Leave the gradient of one mini-batch in the weights of the networks `names`; returns its
    metrics' sums, this rank's share of them.

    rows: its columns, with `response_mask` (B, T) marking the tokens that count. forward: passes
    over these very rows that have been made already; they serve if they are of all networks
    `names`.
    """
    plan, sums, mask = models.plan, Sums(), rows["response_mask"]
    names = tuple(name for name in names if name in models.networks())
    weights = {"actor": plan.aggregation({"response_mask": mask})}
    if models.critic is not None:
        weights["critic"] = plan.critic_aggregation({"response_mask": mask})
    if forward is None or not serves(forward, names):
        some = torch.arange(len(mask))
        if "critic" not in names:
            some, silent = _by_signal(plan, rows)
            _note_silent(models, take(rows, silent), pick(weights["actor"], silent), sums)
        parts = models.passes.parts(take(rows, some), grad=True)
        forward = [(some[part], {}) for part in parts]
    upstream = None
    if "actor" in names and plan.policy_loss.component.couples != "row" and len(forward) > 1:
        parts = [part for part, _ in forward]
        upstream = _coupled_gradient(models, rows, weights["actor"], parts, sums)

    def loss_of(part: Tensor, micro: Mapping[str, Any], scored: Mapping[str, Tensor]) -> Tensor:
        mine = {name: pick(w, part) for name, w in weights.items()}
        coupled = None if upstream is None else pick(upstream, part)
        return _loss(models, micro, scored, mine, kl_coef, sums, upstream=coupled)

    with _named(_losses(plan, names)):
        backward(models, rows, forward, names, loss_of)
    return sums


def _losses(plan: Plan, names: tuple[str, ...]) -> list[Bound]:
    """The components that determine the gradient of the networks `names`."""
    kl = plan.kl if plan.recipe.config.kl.place == "loss" else None
    of = {"actor": [plan.policy_loss, kl], "critic": [plan.value_loss]}
    return [bound for name in names for bound in of[name] if bound]


def _by_signal(plan: Plan, rows: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Rows whose pass may leave a gradient, and the others: none, unless the policy loss is
    declared to leave no gradient where advantages are 0, and nothing else is in the loss."""
    config = plan.recipe.config
    alone = not config.actor.entropy_coef and not (plan.kl and config.kl.place == "loss")
    if plan.policy_loss.component.needs_signal and alone and config.train.skip_no_signal:
        signal = (on_host(rows["advantages"]) != 0).any(1)
    else:
        signal = torch.ones(len(rows["advantages"]), dtype=torch.bool)
    return signal.nonzero()[:, 0], (~signal).nonzero()[:, 0]


@torch.no_grad()
def _note_silent(models: Models, rows: Mapping[str, Any], weights: Tensor, sums: Sums) -> None:
    """Metrics of rows without a gradient, from a forward pass only: a third of the work."""
    if len(weights):
        columns = {**rows, **models.current(rows)}
        loss, metrics = policy_loss(models.plan, columns)
        if models.ranks.first:  # all ranks have the same; sums are added up
            _note_policy(sums, columns, weights, (weights * loss).sum(), metrics)


def _loss(
    models: Models,
    micro: Mapping[str, Any],
    scored: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    kl_coef: float,
    sums: Sums,
    *,
    upstream: Tensor | None,
) -> Tensor:
    """The loss () of one micro-batch, from its forward pass `scored`; its share of each metric goes
    into `sums`."""
    plan, config, critic = models.plan, models.plan.recipe.config, models.critic
    columns = dict(micro)
    loss = torch.zeros((), device=micro["response_mask"].device)
    if "log_probs" in scored:
        columns |= {name: x for name, x in scored.items() if name != "prediction"}
        w = weights["actor"]
        if upstream is None:
            token_loss, metrics = policy_loss(plan, columns)
            pg_loss = (w * token_loss).sum()
            _note_policy(sums, columns, w, pg_loss, metrics)
            loss = loss + pg_loss
        else:  # the whole mini-batch's gradient, carried in by the chain rule
            loss = loss + (upstream * scored["log_probs"]).sum()
        if plan.kl and config.kl.place == "loss":
            kl_loss = (w * plan.kl(columns)).sum()
            sums.add("actor/kl_loss", kl_loss)
            loss = loss + kl_coef * kl_loss
        if config.actor.entropy_coef:
            loss = loss - config.actor.entropy_coef * (w * columns["entropy"]).sum()
    if "prediction" in scored:
        assert critic is not None
        columns |= critic.columns(scored["prediction"])
        assert plan.value_loss is not None
        token_loss, metrics = plan.value_loss(columns)
        _refuse_our_names("critic", plan.value_loss, metrics)
        value_loss = (weights["critic"] * token_loss).sum()
        sums.add("critic/vf_loss", value_loss)
        sums.add_means({f"critic/{name}": x for name, x in metrics.items()}, weights["critic"])
        sums.add("weight/critic", weights["critic"].sum())
        loss = loss + (config.critic.coef if models.shared else 1.0) * value_loss
    return loss


@contextmanager
def _named(losses: Sequence[Bound]) -> Iterator[None]:
    """Around the gradient of these losses: torch finds here that one of them has changed, in place,
    what its gradient is made of."""
    try:
        yield
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise ComponentError(
            f"{' or '.join(bound.component.label for bound in losses)}: changes a tensor in place "
            "(x += 1, x.clamp_()) that its gradient needs; create a new one (x = x + 1)"
        ) from None


def policy_loss(plan: Plan, columns: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss per token (B, T), weighed by the plan's correction, and its metrics."""
    loss, metrics = plan.policy_loss(columns)
    _refuse_our_names("actor", plan.policy_loss, metrics)
    return (loss if plan.correction is None else loss * columns[plan.correction]), metrics


def _refuse_our_names(network: str, loss: Bound, metrics: Mapping[str, Tensor]) -> None:
    """Refuse a loss's metrics that have names of rlzoo's metrics: they would be added up."""
    for name in metrics:
        if f"{network}/{name}" in OURS:
            raise ComponentError(
                f"{loss.component.label}: its metric {name!r} is also a metric of rlzoo"
            )


def policy_loss_gradient(
    plan: Plan, columns: Mapping[str, Any], weights: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """d(policy loss)/d(log_probs) (B, T), the loss () and its metrics (B, T).

    columns: `log_probs` among them; `response_mask` marks the tokens that count. weights: (B, T),
    the aggregation's for that mask.
    """
    log_probs = columns["log_probs"].detach().clone().requires_grad_(True)
    with torch.enable_grad():
        token_loss, metrics = policy_loss(plan, {**columns, "log_probs": log_probs})
        loss = (weights * token_loss).sum()
        if not loss.requires_grad:  # a loss that does not depend on the policy
            return torch.zeros_like(log_probs), loss, metrics
        with _named([plan.policy_loss]):
            (gradient,) = torch.autograd.grad(loss, log_probs)
    return gradient, loss, metrics


def first_gradient(plan: Plan, batch: Mapping[str, Any], advantages: Tensor) -> Tensor:
    """d(policy loss)/d(log_probs), (B, T), of the update's first step: the ratio is 1, the
    correction and the mask of what counts are the run's. A loss that chooses tokens by `entropy`
    chooses by the batch's."""
    mask = loss_mask(plan, batch)
    columns = {**batch, "advantages": advantages, "log_probs": batch["old_log_probs"]}
    columns |= {"response_mask": mask}
    weights = plan.aggregation({"response_mask": mask})
    return policy_loss_gradient(plan, columns, weights)[0]


def _note_policy(
    sums: Sums, columns: Mapping[str, Any], w: Tensor, loss: Tensor, metrics: Mapping[str, Tensor]
) -> None:
    """Means weighted like the loss; `weight/actor` normalises them at the end."""
    gap = columns["log_probs"].detach() - columns["old_log_probs"]
    ours = {
        "actor/entropy": columns["entropy"].detach(),
        "actor/ppo_kl": -gap,
        "actor/ratio_mean": gap.exp(),
        FIRST_RATIO_GAP: gap.abs(),
    }
    sums.add("actor/pg_loss", loss)
    sums.add("weight/actor", w.sum())
    sums.add_means(ours | {f"actor/{name}": x for name, x in metrics.items()}, w)


def _coupled_gradient(
    models: Models, rows: Mapping[str, Any], weights: Tensor, parts: list[Tensor], sums: Sums
) -> Tensor:
    """d(policy loss)/d(log_probs), (B, T), of a loss that couples the whole mini-batch."""
    with torch.no_grad():  # in the update's own passes
        score = partial(models.policy.log_prob_stats, want=("entropy",))
        columns = {**rows, **models.passes.over(rows, parts, score)}
    gradient, loss, metrics = policy_loss_gradient(models.plan, columns, weights)
    if models.ranks.first:  # all ranks have the same; sums are added up
        _note_policy(sums, columns, weights, loss, metrics)
    return gradient
