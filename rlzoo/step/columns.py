"""Computes the columns after the scores: those of policy, reference, critic and plugins, then the
rewards with their KL, then the estimator's advantages."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlzoo.accel.engine import Forward, ahead
from rlzoo.errors import ModelError
from rlzoo.mdp.batch import Batch, take
from rlzoo.mdp.rules import token_texts
from rlzoo.ops import less_penalty, masked_mean, masked_sum, on_host, pick, put, whiten
from rlzoo.plugin.border import border
from rlzoo.plugin.call import call, check
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.sample import resources

if TYPE_CHECKING:  # transformers
    from rlzoo.lm.models import Models
    from rlzoo.lm.policy import Policy

STATS = {"sum_pi_squared": "sum_pi_squared", "old_entropy": "entropy"}  # what a pass calls them
FROZEN = ("ref_log_probs", "full_kl", "teacher_log_probs", "teacher_kl")
GAP_ROWS = 4  # scored to see how far the sampler is from it


@torch.no_grad()
def add_columns(
    models: Models, batch: Batch, *, stream: str, step: int, for_update: bool = False
) -> Forward | None:
    """Add the columns that the plan needs: from the policy, the reference, the critic, plugins.

    for_update: an update on this batch follows. Where it is a single one, whose passes may be held,
    its forward passes are made now, since these columns can be read off them, and returned.
    """
    plan, forward = models.plan, None
    read_off = models.critic is not None or "old_log_probs" not in batch
    if for_update and plan.one_update and read_off:
        forward = ahead(models, batch, actor=step >= plan.actor_from)
    _add_model_columns(models, batch, forward)
    more = resources(models, batch, (f"{stream}/columns",), step)
    if stream == "train":  # others look on
        more["memory"] = models.memory
    for bound in plan.columns:
        given = {n: batch[n] for n in (*bound.needs, "response_mask") if n in batch} | more
        samples = models.sharded and "sample" in bound.needs
        whole = models.whole(bound.needs) if samples else nullcontext()
        with whole, border(bound.component.label):
            value = call(bound.component, given, bound.options)
        batch.add(bound.name, value, bound.component.shape)
    return forward


def _read_off(forward: Forward | None, name: str) -> Tensor | None:
    """A column (B, ...) that these passes made, if they did."""
    if forward is None or name not in forward[0][1]:
        return None
    back = torch.cat([part for part, _ in forward]).argsort()
    return pick(torch.cat([found[name].detach() for _, found in forward]), back)


def _add_model_columns(models: Models, batch: Batch, forward: Forward | None) -> None:
    needs, passes, policy = models.plan.needs, models.passes, models.policy
    reference, critic = models.reference, models.critic
    scored = _read_off(forward, "log_probs")
    if scored is not None and "old_log_probs" not in batch:
        batch.add("old_log_probs", scored)
    if "full_kl" in needs:
        assert reference is not None
        batch.update(passes.map(batch, lambda c: policy.full_kl(c, reference)))
    asked = {name: stat for name, stat in STATS.items() if name in needs}
    asked |= {} if "old_log_probs" in batch else {"old_log_probs": "log_probs"}
    if asked:
        want = tuple(asked.values())
        stats = passes.map(batch, lambda c: policy.log_prob_stats(c, want=want, entropy_grad=False))
        batch.update({name: stats[stat] for name, stat in asked.items()})
    if reference is not None and "ref_log_probs" in needs and "ref_log_probs" not in batch:
        batch.add("ref_log_probs", passes.map(batch, reference.log_prob_stats)["log_probs"])
    if models.teachers:
        _add_teacher_columns(models, batch)
    for name in filter(batch.__contains__, FROZEN):
        check(batch[name].isfinite().all(), partial(_impossible, models, batch, name))
    if critic is not None:
        prediction = _read_off(forward, "prediction")
        if prediction is None:
            values = passes.map(batch, critic.values)
        else:
            values = critic.values(batch, prediction)
        batch.add("values", values["values"])
        bootstrap = models.plan.recipe.config.rollout.truncation == "bootstrap"
        keep = batch["truncated"] & bootstrap
        batch.add("bootstrap_values", torch.where(keep, values["last_values"], 0))


def _impossible(models: Models, batch: Columns, name: str) -> ModelError:
    row, t = (~batch[name].isfinite()).nonzero()[0].tolist()
    token = token_texts(models.tokenizer, [i := int(batch["response_ids"][row, t])])[i]
    whose = "teacher" if "teacher" in name else "reference"
    return ModelError(
        f"{name} is {float(batch[name][row, t]):g} for token {t} of row {row}, {token}: the "
        f"{whose} gives probability 0 to a token that the policy may choose"
    )


def _add_teacher_columns(models: Models, batch: Batch) -> None:
    """Log-probs of each row from the teacher of its domain."""
    taught = models.teachers
    domains = [name if name in taught else None for name in batch["domains"]]
    if None in domains and None not in taught:  # of a prompt that was typed
        raise ModelError(
            "teacher.path: there is no teacher for a prompt whose domain is not in teacher.domains"
        )
    if len(set(domains)) == 1:
        batch.update(_taught(models, batch, taught[domains[0]]))
        return
    whole: dict[str, Tensor] = {}
    for domain in dict.fromkeys(domains):
        rows = torch.tensor([i for i, name in enumerate(domains) if name == domain])
        for name, x in _taught(models, take(batch, rows), taught[domain]).items():
            whole.setdefault(name, x.new_zeros(batch.rows, batch.steps))[rows] = x
    batch.update(whole)


def _taught(models: Models, columns: Columns, teacher: Policy) -> dict[str, Tensor]:
    """The columns (B, T) of a teacher for some rows that the plan needs."""
    passes = replace(models.passes, policy=teacher)  # it may be the larger of the two
    if "teacher_kl" in models.plan.needs:
        found = passes.map(columns, lambda c: models.policy.full_kl(c, teacher))
        return {"teacher_kl": found["full_kl"], "teacher_log_probs": found["ref_log_probs"]}
    if "teacher_log_probs" in models.plan.needs:
        return {"teacher_log_probs": passes.map(columns, teacher.log_prob_stats)["log_probs"]}
    return {}


@torch.no_grad()
def log_prob_gap(models: Models, batch: Batch, forward: Forward | None, *, sampled: bool) -> Tensor:
    """() mean of abs(log pi - log mu) over chosen tokens (nats): mu is the sampling distribution,
    and pi the policy according to a forward pass. `sampled`: old_log_probs are the sampler's own,
    so that `GAP_ROWS` rows are scored for this; the update's pass, where it is there, spares
    that."""
    columns: Columns = batch
    if not sampled:
        scored = batch["old_log_probs"]
    else:
        rows = torch.arange(0, batch.rows, max(1, batch.rows // GAP_ROWS))[:GAP_ROWS]
        columns, read = take(batch, rows), _read_off(forward, "log_probs")
        if read is not None:  # of the same rows: how rows are cut into passes moves no metric
            scored = pick(read, rows)
        else:
            scored = models.passes.map(columns, models.policy.log_prob_stats)["log_probs"]
    return masked_mean((scored - columns["sampler_log_probs"]).abs(), columns["response_mask"])


# ---------------------------------------------------------------- rewards, advantages


@dataclass
class KLController:
    """The KL coefficient, fixed or adaptive: coef *= 1 + clip(KL / target - 1, +-0.2) n / horizon.

    KL in nats per response, n responses.  Source: Ziegler et al. 2019, arXiv:1909.08593.
    """

    coef: float
    adaptive: bool = False
    target: float = 1.0
    horizon: float = 10_000.0

    def update(self, kl: float, n: int) -> None:
        if self.adaptive:
            error = min(max(kl / self.target - 1, -0.2), 0.2)
            self.coef *= 1 + error * n / self.horizon


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
    mask = batch["response_mask"]
    cut = on_host(batch["truncated"])[:, None]
    return put(torch.where(cut, 0, on_host(mask)), mask.device)
