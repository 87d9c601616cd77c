"""The update: policy and value losses over epochs x mini-batches x micro-batches.

An aggregation weights the tokens of a whole mini-batch before it is split into micro-batches, so
the split does not change the gradient.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter

import torch
from torch import Tensor

from rlzoo.accel.engine import NOTHING, Engine, Kept, Terms
from rlzoo.errors import ComponentError
from rlzoo.lm.world import World
from rlzoo.mdp import noise
from rlzoo.mdp.batch import Batch, take
from rlzoo.plugin.border import Bound
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.keys import Optimizer
from rlzoo.recipe.plan import Plan
from rlzoo.runs.metrics import FIRST_RATIO_GAP, OURS
from rlzoo.step.columns import loss_mask
from rlzoo.step.optimizer import optimizer_of

Sums = dict[str, list[Tensor]]  # terms () of metrics and of the weights that norm them, by name
Phases = dict[str, tuple[float, int]]  # seconds and generated tokens of each phase of a step


@dataclass
class Experience:
    """A batch, ready for the update.

    log_prob_gap: the distance of the sampling distribution from the policy, in nats.
    kept: the update's forward passes, where the batch's columns were read off them.
    phases: `gen`, `columns` and `adv`.
    """

    batch: Batch
    log_prob_gap: float
    kept: Kept = field(default_factory=Kept)
    phases: Phases = field(default_factory=dict)


def update(
    world: World,
    experience: Experience,
    optimizers: Mapping[str, torch.optim.Optimizer],
    step: int,
    kl_coef: float,
) -> dict[str, float]:
    """All optimizer steps on one batch; returns the means of their metrics."""
    plan, engine, batch, kept = world.plan, world.engine, experience.batch, experience.kept
    mask = loss_mask(plan, batch)
    totals: Terms = defaultdict(list)
    # Networks on one trunk are trained in one pass, others one after the other, so that gradients
    # and activations of one are held at a time: the critic first, whose passes may be there
    # already. An update of one changes nothing that the other learns from.
    trained = [name for name in engine.networks if name != "actor" or step >= plan.actor_from]
    for names in [tuple(trained)] if engine.shared else [(name,) for name in reversed(trained)]:
        epochs, count = plan.passes[names[0]]
        for epoch in range(epochs):
            generator = noise.generator(world.seed, f"shuffle/{epoch}", step)
            parts = _minibatches(plan, batch, count, generator)
            # Kept passes are of one update on all rows, in this order.
            for part in [torch.arange(batch.rows)] if kept else parts:
                rows = {**take(batch, part), "response_mask": mask[part]}
                old: dict[str, Tensor] = {}
                sums = gradients(engine, plan, rows, kl_coef, names, kept, old)
                batch.update({name: x[part.argsort()] for name, x in old.items()})
                _step(engine, plan, optimizers, sums, names, totals)
    kept.clear()
    return {
        k: OVER_STEPS[k](v) if k in OVER_STEPS else sum(v) / len(v)
        for k, v in sorted(totals.items())
    }


# Metrics that are not the mean over optimizer steps. Later steps move the policy away from the one
# that sampled.
OVER_STEPS: dict[str, Callable[[list[float]], float]] = {
    "train/skipped": sum,
    FIRST_RATIO_GAP: itemgetter(0),
}


def _minibatches(plan: Plan, batch: Batch, parts: int, generator: torch.Generator) -> list[Tensor]:
    """Rows of each mini-batch, shuffled; whole groups where the policy loss looks at groups."""
    if "group_ids" not in plan.policy_loss.needs:
        return list(torch.randperm(batch.rows, generator=generator).tensor_split(parts))
    group_ids = batch["group_ids"].cpu()
    groups = group_ids.unique()
    groups = groups[torch.randperm(len(groups), generator=generator)]
    return [
        torch.isin(group_ids, chosen).nonzero()[:, 0]
        for chosen in groups.tensor_split(parts)
        if len(chosen)
    ]


def gradients(
    engine: Engine,
    plan: Plan,
    rows: Columns,
    kl_coef: float,
    names: Sequence[str] = ("actor", "critic"),
    kept: Kept = NOTHING,
    old: dict[str, Tensor] | None = None,
) -> dict[str, float]:
    """Leave the gradient of one mini-batch in the weights of the networks `names`; returns its
    metrics' sums. rows: its columns, with `response_mask` (B, T) marking the tokens that count.
    kept: passes that may have been made over these very rows. old: gets `old_log_probs` (B, T), the
    log-probs of these passes, if the rows lack them, because a single update follows the rollout.
    """
    mask, config = rows["response_mask"], plan.recipe.config
    names = tuple(name for name in names if name in engine.networks)
    weights = {"actor": plan.aggregation({"response_mask": mask})}
    if engine.critic is not None:
        weights["critic"] = plan.critic_aggregation({"response_mask": mask})
    whole: Sums = defaultdict(list)  # what is measured once, and not pass by pass
    with_signal, old = None, {} if old is None else old
    if "critic" not in names and plan.skips_silent and not kept.has("log_probs"):
        with_signal = _with_signal(engine, plan, rows, weights["actor"], whole, old)

    def couple(columns: Columns) -> Tensor:
        """d(policy loss)/d(log_probs), (B, T), of a loss that couples the whole mini-batch."""
        if "old_log_probs" not in rows:
            columns = {
                **columns,
                **_read_off(columns["log_probs"], torch.arange(len(mask)), mask, old),
            }
        gradient, loss, metrics = policy_loss_gradient(plan, columns, weights["actor"])
        whole.clear()  # of an attempt that ran out of memory
        _note_policy(whole, columns, weights["actor"], loss, metrics)
        return gradient

    def loss_of(
        part: Tensor, micro: Columns, scored: Mapping[str, Tensor], upstream: Tensor | None
    ) -> tuple[Tensor, Sums]:
        """The loss () of the micro-batch `micro`, the rows `part`, from its forward pass `scored`,
        and its terms of each metric. upstream: d(policy loss)/d(log_probs) of these rows, if the
        loss couples the whole mini-batch: the chain rule carries it in."""
        sums: Sums = defaultdict(list)
        columns = {**micro, **scored}
        loss = torch.zeros((), device=mask.device)
        if "log_probs" in scored:
            w = weights["actor"][part]
            if "old_log_probs" not in rows:
                columns |= _read_off(scored["log_probs"], part, mask, old)
            if upstream is None:
                token_loss, metrics = policy_loss(plan, columns)
                pg_loss = (w * token_loss).sum()
                _note_policy(sums, columns, w, pg_loss, metrics)
                loss = loss + pg_loss
            else:
                loss = loss + (upstream * scored["log_probs"]).sum()
            if plan.kl and config.kl.place == "loss":
                kl_loss = (w * plan.kl(columns)).sum()
                sums["actor/kl_loss"].append(kl_loss.detach())
                loss = loss + kl_coef * kl_loss
            if config.actor.entropy_coef:
                loss = loss - config.actor.entropy_coef * (w * columns["entropy"]).sum()
        if "prediction" in scored:
            columns |= engine.critic.columns(scored["prediction"])
            value_loss = _value_loss(plan, columns, weights["critic"][part], sums)
            loss = loss + (config.critic.coef if engine.shared else 1.0) * value_loss
        return loss, sums

    coupled = "actor" in names and plan.policy_loss.component.couples != "row"
    with _named(plan, names):
        terms = engine.backward(
            rows, names, loss_of, rows=with_signal, couple=couple if coupled else None, kept=kept
        )
    once = {name: [float(x) for x in xs] for name, xs in whole.items()}
    return {n: sum([*once.get(n, ()), *terms.get(n, ())]) for n in {**once, **terms}}


def _value_loss(plan: Plan, columns: Columns, w: Tensor, sums: Sums) -> Tensor:
    assert plan.value_loss is not None
    token_loss, metrics = plan.value_loss(columns)
    _refuse_our_names("critic", plan.value_loss, metrics)
    value_loss = (w * token_loss).sum()
    sums["critic/vf_loss"].append(value_loss.detach())
    sums["weight/critic"].append(w.sum())
    _add_means(sums, {f"critic/{name}": x for name, x in metrics.items()}, w)
    return value_loss


def _read_off(log_probs: Tensor, part: Tensor, like: Tensor, old: dict[str, Tensor]) -> Columns:
    """`old_log_probs` of the rows `part` without them: the log-probs of their pass; these go into
    `old` too, (B, T) as `like` is."""
    old.setdefault("old_log_probs", log_probs.new_zeros(like.shape))[part] = log_probs.detach()
    return {"old_log_probs": log_probs.detach()}


@torch.no_grad()
def _with_signal(
    engine: Engine,
    plan: Plan,
    rows: Columns,
    weights: Tensor,
    sums: Sums,
    old: dict[str, Tensor],
) -> Tensor:
    """The rows (R,) whose pass may leave a gradient. The metrics of the others go into `sums`: from
    the sampler's log-probs and entropy where these are still the policy's, else from a pass."""
    signal = (rows["advantages"].cpu() != 0).any(1)
    if not signal.all():
        silent = (~signal).nonzero()[:, 0]
        columns, w = take(rows, silent), weights[silent]
        known = {"log_probs": "old_log_probs", "entropy": "old_entropy"}
        if plan.one_update and {known.get(n) for n in engine.outputs} <= columns.keys():
            columns |= {n: columns[known[n]] for n in engine.outputs}
        else:
            columns |= engine.scores(columns, engine.outputs)
            if "old_log_probs" not in rows:
                columns |= _read_off(columns["log_probs"], silent, weights, old)
        loss, metrics = policy_loss(plan, columns)
        _note_policy(sums, columns, w, (w * loss).sum(), metrics)
    return signal.nonzero()[:, 0]


# ---------------------------------------------------------------- optimizers


def make_optimizers(engine: Engine, plan: Plan) -> dict[str, torch.optim.Optimizer]:
    """One optimizer for each trained network, by its name."""
    return {n: optimizer_of(x, plan.recipe.config[n]) for n, x in engine.networks.items()}


def learning_rate(config: Optimizer, step: int, progress: float) -> float:
    """The rate of step `step` (from 0) when `progress` in [0, 1] of the budget is spent."""
    rise = min(1.0, (step + 1) / config.lr_warmup) if config.lr_warmup else 1.0
    fall = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
    }[config.lr_schedule]
    return config.lr * rise * fall


# These sums are losses already; the others are sums of weighted metrics.
_MAIN = {"actor": "actor/pg_loss", "critic": "critic/vf_loss"}
_LOSSES = ("actor/pg_loss", "actor/kl_loss", "critic/vf_loss")


def _step(
    engine: Engine,
    plan: Plan,
    optimizers: Mapping[str, torch.optim.Optimizer],
    sums: Mapping[str, float],
    names: Sequence[str],
    totals: Terms,
) -> None:
    """Step the optimizers, unless loss or gradient is not finite; the metrics' means go into
    `totals`."""
    for name in names:
        limit = plan.recipe.config[name].max_grad_norm
        finite = math.isfinite(sums.get(_MAIN[name], 0.0))
        norm = engine.step(name, optimizers[name], limit, finite=finite)
        if norm is not None:
            totals[f"{name}/grad_norm"].append(norm)
        totals["train/skipped"].append(1.0 if norm is None else 0.0)
    for name, value in sums.items():
        owner = name.split("/")[0]
        if owner == "weight" or not math.isfinite(value):
            continue
        weight = 1.0 if name in _LOSSES else max(sums[f"weight/{owner}"], 1e-12)
        totals[name].append(value / weight)


@contextmanager
def _named(plan: Plan, names: Sequence[str]) -> Iterator[None]:
    """In this context, torch may find that a loss of these networks changed a tensor in place."""
    try:
        yield
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        kl = plan.kl if plan.recipe.config.kl.place == "loss" else None
        of = {"actor": [plan.policy_loss, kl], "critic": [plan.value_loss]}
        losses = [bound.component.label for name in names for bound in of[name] if bound]
        raise ComponentError(
            f"{' or '.join(losses)}: changes a tensor in place "
            "(x += 1, x.clamp_()) that its gradient needs; create a new one (x = x + 1)"
        ) from None


def policy_loss(plan: Plan, columns: Columns) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss per token (B, T), weighed by the plan's correction, and its metrics."""
    loss, metrics = plan.policy_loss(columns)
    _refuse_our_names("actor", plan.policy_loss, metrics)
    return (loss if plan.correction is None else loss * columns[plan.correction]), metrics


def _refuse_our_names(network: str, loss: Bound, metrics: Mapping[str, Tensor]) -> None:
    """Refuse a loss's metrics that have names of rlzoo's metrics: they would be added up."""
    if clash := [name for name in metrics if name in OURS[network]]:
        raise ComponentError(
            f"{loss.component.label}: its metric {clash[0]!r} is also a metric of rlzoo"
        )


def policy_loss_gradient(
    plan: Plan, columns: Columns, weights: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """d(policy loss)/d(log_probs) (B, T), the loss () and its metrics (B, T). columns: `log_probs`
    among them. weights: (B, T), the aggregation's for their `response_mask`."""
    log_probs = columns["log_probs"].detach().clone().requires_grad_(True)
    with torch.enable_grad():
        token_loss, metrics = policy_loss(plan, {**columns, "log_probs": log_probs})
        loss = (weights * token_loss).sum()
        if not loss.requires_grad:  # a loss that does not depend on the policy
            return torch.zeros_like(log_probs), loss, metrics
        with _named(plan, ("actor",)):
            (gradient,) = torch.autograd.grad(loss, log_probs)
    return gradient, loss, metrics


def _note_policy(
    sums: Sums, columns: Columns, w: Tensor, loss: Tensor, metrics: Mapping[str, Tensor]
) -> None:
    """The metrics of the policy and of its loss."""
    gap = columns["log_probs"].detach() - columns["old_log_probs"]
    ours = {
        "actor/entropy": columns["entropy"].detach(),
        "actor/ppo_kl": -gap,
        "actor/ratio_mean": gap.exp(),
        FIRST_RATIO_GAP: gap.abs(),
    }
    sums["actor/pg_loss"].append(loss.detach())
    sums["weight/actor"].append(w.sum())
    _add_means(sums, ours | {f"actor/{name}": x for name, x in metrics.items()}, w)


def _add_means(sums: Sums, columns: Mapping[str, Tensor], weights: Tensor) -> None:
    """Weighted sums of `columns`, (B, T) by name; an entry without weight may be anything."""
    for name, x in columns.items():
        sums[name].append(torch.where(weights > 0, weights * x, 0).sum().detach())
