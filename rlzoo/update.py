"""The update: epochs x mini-batches x micro-batches of policy and value loss.

An aggregation weighs the tokens of a whole mini-batch, before it is cut into micro-batches: how it
is cut changes no gradient.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo import noise
from rlzoo.batch import Batch, take
from rlzoo.estimate import loss_mask
from rlzoo.rollout import World

Totals = dict[str, list[float]]


def make_optimizer(parameters: Any, config: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        [p for p in parameters if p.requires_grad],
        lr=config.lr,
        betas=tuple(config.betas),
        eps=config.eps,
        weight_decay=config.weight_decay,
        foreach=True,
    )


def learning_rate(config: Any, step: int, progress: float) -> float:
    """The rate of step `step` (from 0) when `progress` in [0, 1] of the budget is spent."""
    rise = min(1.0, (step + 1) / config.lr_warmup) if config.lr_warmup else 1.0
    fall = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
    }[config.lr_schedule]
    return config.lr * rise * fall


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
    kept, world.kept = world.kept, None
    for epoch in range(config.train.epochs):
        generator = noise.generator(world.seed, f"shuffle/{epoch}", step)
        parts = _minibatches(world, batch, generator)
        if kept is not None:  # one update on all rows, in the order of the pass that was kept
            parts = [torch.arange(batch.rows, device=mask.device)]
        for rows in parts:
            one_step(
                world,
                batch.select(rows),
                mask[rows],
                optimizers,
                kl_coef,
                totals,
                train_actor=step >= config.train.critic_warmup,
                kept=kept,
            )
    sums = ("train/skipped",)
    return {k: sum(v) if k in sums else sum(v) / len(v) for k, v in sorted(totals.items())}


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


def one_step(
    world: World,
    rows: Mapping[str, Any],
    mask: Tensor,
    optimizers: Mapping[str, torch.optim.Optimizer],
    kl_coef: float,
    totals: Totals,
    *,
    train_actor: bool = True,
    kept: dict[str, Tensor] | None = None,
) -> None:
    """One optimizer step on a mini-batch: `rows` are its columns, `mask` (B, T) what counts.

    kept: the forward pass of these very rows, where the rollout's columns needed it already.
    """
    plan, config = world.plan, world.plan.recipe.config
    weights = {"actor": plan.aggregation({"response_mask": mask})}
    if world.critic is not None:
        weights["critic"] = plan.critic_aggregation({"response_mask": mask})
    for optimizer in optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    sums: dict[str, float] = defaultdict(float)
    size = config.train.microbatch or len(mask)
    parts = torch.arange(len(mask), device=mask.device).split(size)
    upstream = None
    if train_actor and plan.policy_loss.component.couples != "row" and len(parts) > 1:
        upstream = _coupled_gradient(world, rows, mask, weights["actor"], parts, sums)
    for part in parts:
        micro = {**take(rows, part), "response_mask": mask[part]}
        mine = {name: w[part] for name, w in weights.items()}
        coupled = None if upstream is None else upstream[part]
        scored = kept or world.forward(micro, actor=train_actor)
        _backward(world, micro, scored, mine, kl_coef, sums, upstream=coupled)
    _step(world, optimizers, sums, totals, train_actor=train_actor)


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
    shared = critic is not None and config.critic.trunk == "shared"
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
    if critic is not None:
        columns |= critic.columns(scored["prediction"])
        assert plan.value_loss is not None
        token_loss, metrics = plan.value_loss(columns)
        value_loss = (weights["critic"] * token_loss).sum()
        sums["critic/vf_loss"] += value_loss.item()
        for name, metric in metrics.items():
            sums[f"critic/{name}"] += _mean(metric, weights["critic"])
        sums["weight/critic"] += weights["critic"].sum().item()
        loss = loss + (config.critic.coef if shared else 1.0) * value_loss
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
    mask: Tensor,
    weights: Tensor,
    parts: tuple[Tensor, ...],
    sums: dict[str, float],
) -> Tensor:
    """d(policy loss)/d(log_probs), (B, T), of a loss that couples the whole mini-batch."""
    with torch.no_grad():
        scored = [world.policy.score(take(rows, part), want=("entropy",)) for part in parts]
    columns = {**rows, "response_mask": mask}
    for name in ("log_probs", "entropy"):
        columns[name] = torch.cat([s[name] for s in scored])
    columns["log_probs"].requires_grad_(True)
    token_loss, metrics = _policy_loss(world, columns)
    loss = (weights * token_loss).sum()
    _note_policy(sums, columns, weights, loss, metrics)
    return torch.autograd.grad(loss, columns["log_probs"])[0]


_PER_WEIGHT = {"actor": ("actor/pg_loss", "actor/kl_loss"), "critic": ("critic/vf_loss",)}


def _step(
    world: World,
    optimizers: Mapping[str, torch.optim.Optimizer],
    sums: dict[str, float],
    totals: Totals,
    *,
    train_actor: bool,
) -> None:
    """Clip, and step unless loss or gradient is not finite: such a step is skipped and counted."""
    config = world.plan.recipe.config
    networks: dict[str, nn.Module] = {"actor": world.policy.model}
    if world.critic is not None:
        networks["critic"] = world.critic
    losses = {"actor": sums.get("actor/pg_loss", 0.0), "critic": sums.get("critic/vf_loss", 0.0)}
    for name, optimizer in optimizers.items():
        if name == "actor" and not train_actor:
            continue
        limit = config[name].max_grad_norm
        norm = nn.utils.clip_grad_norm_(
            networks[name].parameters(), math.inf if limit is None else limit, foreach=True
        )
        fine = bool(torch.isfinite(norm)) and math.isfinite(losses[name])
        if fine:
            optimizer.step()
            totals[f"{name}/grad_norm"].append(norm.item())
        totals["train/skipped"].append(0.0 if fine else 1.0)
    for name, value in sums.items():
        owner = name.split("/")[0]
        if owner == "weight" or not math.isfinite(value):
            continue
        whole = name in _PER_WEIGHT[owner]  # losses are sums already, metrics means
        totals[name].append(value if whole else value / max(sums[f"weight/{owner}"], 1e-12))
