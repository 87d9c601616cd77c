"""KL in the reward: a gymnasium wrapper that pays it token by token."""

from typing import Any

import gymnasium
import torch
from torch import Tensor

from rlzoo.env.episodes import Columns
from rlzoo.errors import RlzooError
from rlzoo.lm.policy import Policy
from rlzoo.plugin.border import Bound
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import load_zoo


class KLRewardWrapper(gymnasium.Wrapper):
    """reward - coef * KL penalty of each token, as in a recipe with kl.place=reward.

    policy, reference: the penalty compares their softmax(logits / policy.temperature); for a
        penalty to a teacher, the teacher is the reference.
    penalty: a KL penalty or its name; None, and None for coef and spread ("token" or "last"): the
        environment's recipe decides.

    Each step costs a forward pass of each model over the whole row, without a KV cache.
    info gains log_prob, ref_log_prob and kl (the penalty in nats, before the coefficient).
    """

    def __init__(
        self,
        env: gymnasium.Env,
        policy: Policy,
        reference: Policy,
        penalty: Component | Bound | str | None = None,
        coef: float | None = None,
        spread: str | None = None,
    ):
        super().__init__(env)
        recipe = env.unwrapped.rules.plan.recipe  # type: ignore[attr-defined]
        kl = recipe.config.kl
        self.policy, self.reference = policy, reference
        self.coef = kl.coef if coef is None else coef
        self.spread = kl.spread if spread is None else spread
        if self.spread not in ("token", "last"):
            raise RlzooError(f"spread must be 'token' or 'last'. Got {self.spread!r}")
        if penalty is None:
            penalty = Bound.of(load_zoo().kl_penalties[kl.name], recipe.options("kl"))
        elif isinstance(penalty, str):
            penalty = load_zoo().kl_penalties[penalty]
        self.penalty = penalty

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Columns]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        columns = self._columns()
        penalty = self.penalty(columns)  # (1, t + 1)
        kl = penalty[0, -1].item()
        info["log_prob"] = columns["log_probs"][0, -1].item()
        info["ref_log_prob"] = columns["ref_log_probs"][0, -1].item()
        info["kl"] = kl
        if self.spread == "last":
            kl = penalty.sum().item() if terminated or truncated else 0.0
        return observation, float(reward) - self.coef * kl, terminated, truncated, info

    @torch.no_grad()
    def _columns(self) -> Columns:
        """The row's columns, including those that a KL penalty may need."""
        columns = self.env.unwrapped.columns()  # type: ignore[attr-defined]
        device = self.policy.device
        columns = {n: x.to(device) if isinstance(x, Tensor) else x for n, x in columns.items()}
        columns["log_probs"] = columns["old_log_probs"] = self.policy.log_probs(columns)
        if "full_kl" in self.penalty.needs:
            columns |= self.policy.full_kl(columns, self.reference)
        else:
            columns["ref_log_probs"] = self.reference.log_probs(columns)
        return columns | {"teacher_log_probs": columns["ref_log_probs"]}
