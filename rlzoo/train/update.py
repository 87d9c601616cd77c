"""The update: epochs x mini-batches x micro-batches of policy and value loss.

An aggregation weighs the tokens of a whole mini-batch, before it is cut into micro-batches: how it
is cut changes no gradient.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo.lm.world import World
from rlzoo.mdp import noise
from rlzoo.mdp.batch import Batch, take
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.advantages import loss_mask
from rlzoo.train.optimizer import Totals, _step


def update(
    world: World,
    batch: Batch,
    optimizers: Mapping[str, torch.optim.Optimizer],
    step: int,
    kl_coef: float,
) -> dict[str, float]:
    """All optimizer steps on one batch; returns the means of their metrics."""
    config = world.plan.recipe.config
    mask = loss_mask(world.plan, batch)
    totals: Totals = defaultdict(list)
    for epoch in range(config.train.epochs):
        generator = noise.generator(world.seed, f"shuffle/{epoch}", step)
        parts = _minibatches(world, batch, generator)
        if world.kept is not None:  # one update on all rows, in the order of the pass that was kept
            parts = [torch.arange(batch.rows, device=mask.device)]
        for part in parts:
            rows = {**batch.select(part), "response_mask": mask[part]}
            for names in _turns(world, step):
                sums = _fitted_gradients(world, rows, kl_coef, names)
                _step(world, optimizers, sums, totals, names)
            world.kept = None
    added = ("train/skipped",)
    return {k: sum(v) if k in added else sum(v) / len(v) for k, v in sorted(totals.items())}


def _turns(world: World, step: int) -> list[tuple[str, ...]]:
    """The networks that are trained, by name: those on one trunk in one pass, others one after the
    other, so that gradients and activations of one are held at a time."""
    names = [n for n in world.networks() if n != "actor" or world.trains_actor(step)]
    return [tuple(names)] if world.shared else [(name,) for name in names]


def _fitted_gradients(
    world: World, rows: Mapping[str, Any], kl_coef: float, names: tuple[str, ...]
) -> dict[str, float]:
    """`gradients`, with what is kept of an earlier pass, and again in halves if need be."""

    def attempt() -> dict[str, float]:
        return gradients(world, rows, kl_coef, names, kept=world.kept)

    return world.fitted(attempt)


def _minibatches(world: World, batch: Batch, generator: torch.Generator) -> list[Tensor]:
    """Rows of each mini-batch, shuffled; whole groups where the policy loss looks at groups."""
    parts = world.plan.recipe.config.train.minibatches
    device = batch["response_mask"].device
    if "group_ids" not in world.plan.policy_loss.needs:
        shuffle = torch.randperm(batch.rows, generator=generator).to(device)
        return list(shuffle.tensor_split(parts))
    groups = batch["group_ids"].unique()
    groups = groups[torch.randperm(len(groups), generator=generator).to(device)]
    return [
        torch.isin(batch["group_ids"], some).nonzero()[:, 0]
        for some in groups.tensor_split(parts)
        if len(some)
    ]


def gradients(
    world: World,
    rows: Mapping[str, Any],
    kl_coef: float,
    names: tuple[str, ...] = ("actor", "critic"),
    *,
    kept: dict[str, Tensor] | None = None,
) -> dict[str, float]:
    """Leave the gradient of one mini-batch in the weights of the networks `names`; returns its
    metrics, summed.

    rows: its columns, `response_mask` (B, T) what counts. kept: the forward pass of these very
    rows, where the rollout's columns needed it already.
    """
    plan = world.plan
    mask = rows["response_mask"]
    weights = {"actor": plan.aggregation({"response_mask": mask})}
    if world.critic is not None:
        weights["critic"] = plan.critic_aggregation({"response_mask": mask})
    for network in world.networks().values():
        network.zero_grad(set_to_none=True)
    sums: dict[str, float] = defaultdict(float)
    actor, critic = "actor" in names, "critic" in names and world.critic is not None
    some = torch.arange(len(mask), device=mask.device)
    if actor and not critic and kept is None:
        some = _with_signal(plan, rows)
    parts = [some] if kept is not None else world.parts(take(rows, some), grad=True)
    upstream = None
    if actor and plan.policy_loss.component.couples != "row" and len(parts) > 1:
        upstream = _coupled_gradient(world, rows, weights["actor"], parts, sums)
    for part in world.ranks.share(parts):
        part = some[part]
        micro = take(rows, part)
        mine = {name: w[part] for name, w in weights.items()}
        with _lean_gradients(world):
            scored = kept or world.forward(micro, actor=actor, critic=critic)
        # Of a pass that was kept, what these networks made.
        scored = {n: x for n, x in scored.items() if (critic if n == "prediction" else actor)}
        coupled = None if upstream is None else upstream[part]
        _backward(world, micro, scored, mine, kl_coef, sums, upstream=coupled)
    if world.sharded and world.ranks.idle(len(parts)):  # passes are collectives
        micro = take(rows, some[parts[0]])
        idle = world.forward(micro, actor=actor, critic=critic)
        torch.stack([x.sum() for x in idle.values() if x.requires_grad]).sum().mul(0).backward()
    for network in world.networks().values():
        for weight in network.parameters():
            if weight.grad is not None and weight.grad.is_sparse:
                weight.grad = weight.grad.to_dense()
    world.ranks.sum_gradients(world.networks().values())
    return world.ranks.sum(sums)


@contextmanager
def _lean_gradients(world: World) -> Iterator[None]:
    """Passes made within leave nothing as large as the vocabulary each: of an embedding they leave
    the gradient of the rows that they read, the head's they add in place. Not of weights that are
    spread over ranks: those gradients leave at once."""
    if world.sharded:
        yield
        return
    trunks = [world.policy.model, *([world.critic.trunk] if world.critic else [])]
    found = [trunk.get_input_embeddings() for trunk in trunks if trunk is not None]
    tables = [x for x in found if type(x) is nn.Embedding]
    for table in tables:
        table.sparse = True
    world.policy.accumulate = True
    try:
        yield
    finally:
        world.policy.accumulate = False
        for table in tables:
            table.sparse = False


def _with_signal(plan: Plan, rows: Mapping[str, Any]) -> Tensor:
    """Rows (R,) whose pass may leave a gradient: all, unless the policy loss is declared to leave
    none where advantages are 0, and nothing else is in the loss."""
    config = plan.recipe.config
    alone = not config.actor.entropy_coef and not (plan.kl and config.kl.place == "loss")
    everything = torch.arange(len(rows["response_mask"]), device=rows["response_mask"].device)
    if not (plan.policy_loss.component.needs_signal and alone and config.train.skip_no_signal):
        return everything
    return everything[(rows["advantages"] != 0).any(1)]


def _backward(
    world: World,
    micro: Mapping[str, Any],
    scored: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    kl_coef: float,
    sums: dict[str, float],
    *,
    upstream: Tensor | None,
) -> None:
    """Losses and backward of one micro-batch, from its forward pass `scored`; its share of each
    metric goes into `sums`."""
    plan, config, critic = world.plan, world.plan.recipe.config, world.critic
    columns = dict(micro)
    loss = torch.zeros((), device=micro["response_mask"].device)
    if "log_probs" in scored:
        columns |= {"log_probs": scored["log_probs"], "entropy": scored["entropy"]}
        w = weights["actor"]
        if upstream is None:
            token_loss, metrics = _policy_loss(world, columns)
            policy_loss = (w * token_loss).sum()
            _note_policy(sums, columns, w, policy_loss, metrics)
            loss = loss + policy_loss
        else:  # the whole mini-batch's gradient, carried in by the chain rule
            loss = loss + (upstream * scored["log_probs"]).sum()
        if plan.kl and config.kl.place == "loss":
            kl_loss = (w * plan.kl(columns)).sum()
            sums["actor/kl_loss"] += kl_loss.item()
            loss = loss + kl_coef * kl_loss
        if config.actor.entropy_coef:
            loss = loss - config.actor.entropy_coef * (w * columns["entropy"]).sum()
    if "prediction" in scored:
        assert critic is not None
        columns |= critic.columns(scored["prediction"])
        assert plan.value_loss is not None
        token_loss, metrics = plan.value_loss(columns)
        value_loss = (weights["critic"] * token_loss).sum()
        sums["critic/vf_loss"] += value_loss.item()
        for name, metric in metrics.items():
            sums[f"critic/{name}"] += _mean(metric, weights["critic"])
        sums["weight/critic"] += weights["critic"].sum().item()
        loss = loss + (config.critic.coef if world.shared else 1.0) * value_loss
    if loss.requires_grad:
        loss.backward()


def _policy_loss(world: World, columns: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    loss, metrics = world.plan.policy_loss(columns)
    correction = world.plan.correction
    return (loss if correction is None else loss * columns[correction]), metrics


def _note_policy(
    sums: dict[str, float],
    columns: Mapping[str, Any],
    w: Tensor,
    loss: Tensor,
    metrics: Mapping[str, Tensor],
) -> None:
    """Means weighted like the loss; `weight/actor` normalises them at the end."""
    gap = columns["log_probs"].detach() - columns["old_log_probs"]
    sums["actor/pg_loss"] += loss.item()
    sums["actor/entropy"] += _mean(columns["entropy"].detach(), w)
    sums["actor/ppo_kl"] += _mean(-gap, w)
    sums["actor/ratio_mean"] += _mean(gap.exp(), w)
    for name, metric in metrics.items():
        sums[f"actor/{name}"] += _mean(metric, w)
    sums["weight/actor"] += w.sum().item()


def _mean(x: Tensor, weights: Tensor) -> float:
    return torch.where(weights > 0, weights * x, 0).sum().item()


def _coupled_gradient(
    world: World,
    rows: Mapping[str, Any],
    weights: Tensor,
    parts: list[Tensor],
    sums: dict[str, float],
) -> Tensor:
    """d(policy loss)/d(log_probs), (B, T), of a loss that couples the whole mini-batch."""
    with torch.no_grad():
        scored = world.passes(rows, parts, lambda micro: _log_probs_and_entropy(world, micro))
    columns = {**rows, "log_probs": scored[..., 0].clone(), "entropy": scored[..., 1]}
    columns["log_probs"].requires_grad_(True)
    token_loss, metrics = _policy_loss(world, columns)
    loss = (weights * token_loss).sum()
    if world.ranks.first:  # all ranks have the same; sums are added up
        _note_policy(sums, columns, weights, loss, metrics)
    return torch.autograd.grad(loss, columns["log_probs"])[0]


def _log_probs_and_entropy(world: World, micro: Mapping[str, Any]) -> Tensor:
    scored = world.policy.score(micro, want=("entropy",))
    return torch.stack([scored["log_probs"], scored["entropy"]], -1)
