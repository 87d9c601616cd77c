"""From scores to advantages: KL in the reward, the estimator, whitening."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rlzoo.mdp.batch import Batch
from rlzoo.ops import less_penalty, masked_sum, on_host, put, whiten
from rlzoo.recipe.plan import Plan


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


def make_controller(plan: Plan) -> KLController:
    kl = plan.recipe.config.kl
    coef = kl.coef if plan.kl else 0.0
    return KLController(coef, kl.controller == "adaptive", kl.target, kl.horizon)


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
    """`raw_advantages` as the estimator gives them, `returns`, then `advantages` whitened."""
    out = plan.estimator(batch)
    batch.add("raw_advantages", out["advantages"])
    if "returns" in out:
        batch.add("returns", out["returns"])
    batch.add("advantages", whitened(plan, batch, batch["raw_advantages"]))


def whitened(plan: Plan, batch: Mapping[str, Any], advantages: torch.Tensor) -> torch.Tensor:
    """Advantages (B, T) as the recipe whitens them: over the batch, within groups, or not."""
    config = plan.recipe.config
    if config.whiten == "none":
        return advantages
    groups = batch["group_ids"] if config.whiten == "group" else None
    return whiten(advantages, batch["response_mask"], groups, ddof=config.whiten_ddof)


def loss_mask(plan: Plan, batch: Mapping[str, Any]) -> torch.Tensor:
    """The actions (B, T) that enter the loss: all, or none of a truncated row's."""
    if plan.recipe.config.rollout.truncation != "drop":
        return batch["response_mask"]
    mask = batch["response_mask"]
    cut = on_host(batch["truncated"])[:, None]
    return put(torch.where(cut, 0, on_host(mask)), mask.device)
