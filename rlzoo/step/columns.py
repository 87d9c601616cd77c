"""Computes the columns after the scores: those of policy, reference, critic and plugins, then the
rewards with their KL, then the estimator's advantages."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from rlzoo.accel.engine import Engine, Kept
from rlzoo.errors import ModelError
from rlzoo.mdp.batch import Batch, take
from rlzoo.mdp.rules import token_texts
from rlzoo.ops import less_penalty, masked_mean, masked_sum, whiten
from rlzoo.plugin.border import border
from rlzoo.plugin.call import call
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.keys import Kl
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.sample import resources

if TYPE_CHECKING:  # transformers
    from rlzoo.lm.world import World

# The engine's columns of a rollout, which it calls by the same names without `old_`.
SCORED = ("full_kl", "old_log_probs", "sum_pi_squared", "old_entropy", "ref_log_probs",
          "teacher_log_probs", "teacher_kl")  # fmt: skip
FROZEN = ("ref_log_probs", "full_kl", "teacher_log_probs", "teacher_kl")
GAP_ROWS = 4  # scored to see how far the sampler is from it


@torch.no_grad()
def add_columns(
    world: World, batch: Batch, *, stream: str, step: int, for_update: bool = False
) -> Kept:
    """Add the columns that the plan needs: from the policy, the reference, the critic, plugins.
    for_update: a single update's passes are made now, if they may be kept: these columns are read
    off them. They are returned."""
    plan, engine, kept = world.plan, world.engine, Kept()
    if for_update and plan.one_update and (engine.critic or "old_log_probs" not in batch):
        kept = engine.ahead(batch, actor=step >= plan.actor_from)
    spared = for_update and plan.old_in_loss and step >= plan.actor_from and engine.alone
    _add_scores(world, batch, kept, old=not spared or kept.has("log_probs"))
    more = resources(world, batch, (f"{stream}/columns",), step)
    more |= {"memory": world.memory} if stream == "train" else {}  # others look on
    for bound in plan.columns:
        given = {n: batch[n] for n in (*bound.needs, "response_mask") if n in batch} | more
        whole = engine.whole(bound.needs) if "sample" in bound.needs else nullcontext()
        with whole, border(bound.component.label):
            value = call(bound.component, given, bound.options)
        batch.add(bound.name, value, bound.component.shape)
    return kept


def _add_scores(world: World, batch: Batch, kept: Kept, *, old: bool) -> None:
    """Add the columns of the engine's networks; old_log_probs if `old`."""
    plan, engine = world.plan, world.engine
    needs = plan.needs - {"old_log_probs"} | ({"old_log_probs"} if old else set())
    needs = needs - {"ref_log_probs"} if plan.own_reference else needs
    want = [n.removeprefix("old_") for n in SCORED if n in needs and n not in batch]
    values = () if engine.critic is None else ("values",)
    scores = engine.scores(batch, (*want, *values), kept)
    for name in SCORED:
        scored = scores.get(name.removeprefix("old_"))
        # The log-probs of a frozen model come with its KL.
        if scored is not None and name not in batch and (name in needs or name in FROZEN):
            batch.add(name, scored)
    if plan.own_reference:
        batch.add("ref_log_probs", batch["old_log_probs"])
    for name in filter(batch.__contains__, FROZEN):
        if len(wrong := (~batch[name].isfinite()).nonzero()):
            row, t = wrong[0].tolist()
            i = int(batch["response_ids"][row, t])
            whose = "teacher" if "teacher" in name else "reference"
            raise ModelError(
                f"{name} is {float(batch[name][row, t]):g} for token {t} of row {row}, "
                f"{token_texts(world.policy.tokenizer, [i])[i]}: the {whose} gives probability 0 "
                "to a token that the policy may choose"
            )
    if engine.critic is not None:
        batch.add("values", scores["values"])
        bootstrap = plan.recipe.config.rollout.truncation == "bootstrap"
        keep = batch["truncated"] & bootstrap
        batch.add("bootstrap_values", torch.where(keep, scores["last_values"], 0))


@torch.no_grad()
def log_prob_gap(engine: Engine, batch: Batch, kept: Kept, *, sampled: bool) -> float:
    """The mean of abs(log pi - log mu) over chosen tokens (nats): mu is the sampling distribution,
    and pi the policy according to a forward pass. `sampled`: old_log_probs are the sampler's own,
    so that `GAP_ROWS` rows are scored for this; so where the update is to give them."""
    columns: Columns = batch
    scored = batch.get("old_log_probs")
    if sampled or scored is None:
        rows = torch.arange(0, batch.rows, max(1, batch.rows // GAP_ROWS))[:GAP_ROWS]
        columns = take(batch, rows)
        made = {"log_probs": kept.read("log_probs")[rows]} if kept.has("log_probs") else None
        scored = (made or engine.scores(columns, ("log_probs",)))["log_probs"]
    gap = (scored - columns["sampler_log_probs"]).abs()
    return float(masked_mean(gap, columns["response_mask"]))


# ---------------------------------------------------------------- rewards, advantages


def next_kl_coef(config: Kl, coef: float, kl: float, n: int) -> float:
    """The KL coefficient after n responses of `kl` nats each: coef, if it is fixed, or
    coef (1 + clip(KL / target - 1, +-0.2) n / horizon).

    Source: Ziegler et al. 2019, arXiv:1909.08593.
    """
    if config.controller == "fixed":
        return coef
    error = min(max(kl / config.target - 1, -0.2), 0.2)
    return coef * (1 + error * n / config.horizon)


def add_rewards(plan: Plan, batch: Batch, coef: float) -> None:
    """`rewards` = `scores` - coef * KL where the recipe places KL in the reward."""
    rewards, mask = batch["scores"], batch["response_mask"]
    kl = plan.recipe.config.kl
    if plan.kl and kl.place == "reward":
        # A penalty is written on `log_probs`; at rollout those are the old ones.
        penalty = plan.kl({**batch, "log_probs": batch["old_log_probs"]})
        rewards = less_penalty(rewards, penalty, mask, coef=coef, spread=kl.spread)
    batch.add("rewards", rewards)
    batch.add("sequence_rewards", masked_sum(batch["rewards"], mask))


def add_advantages(plan: Plan, batch: Batch) -> None:
    """Add the estimator's `raw_advantages` and `returns`, then the whitened `advantages`."""
    out = plan.estimator(batch)
    batch.add("raw_advantages", out["advantages"])
    if "returns" in out:
        batch.add("returns", out["returns"])
    batch.add("advantages", whitened(plan, batch, batch["raw_advantages"]))


def whitened(plan: Plan, batch: Columns, advantages: torch.Tensor) -> torch.Tensor:
    """Advantages (B, T) as the recipe whitens them: over the batch, within groups, or not."""
    config = plan.recipe.config
    if config.whiten == "none":
        return advantages
    groups = batch["group_ids"] if config.whiten == "group" else None
    return whiten(advantages, batch["response_mask"], groups, ddof=config.whiten_ddof)


def loss_mask(plan: Plan, batch: Columns) -> torch.Tensor:
    """The actions (B, T) that enter the loss: all, or none of a truncated row's."""
    if plan.recipe.config.rollout.truncation != "drop":
        return batch["response_mask"]
    return torch.where(batch["truncated"][:, None], 0, batch["response_mask"])
