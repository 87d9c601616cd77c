"""KL in the reward: a gymnasium wrapper that pays it token by token."""

from typing import Any

import gymnasium
import torch
from torch import Tensor

from rlzoo.env.token_env import Fields
from rlzoo.lm.policy import Policy
from rlzoo.plugin.border import Bound
from rlzoo.plugin.registry import load_zoo


class KLRewardWrapper(gymnasium.Wrapper):
    """reward - coef * KL penalty of each token, with the penalty, the coefficient and the spread of
    the environment's recipe, as if kl.place were reward.

    policy, reference: the penalty compares their softmax(logits / policy.temperature); for a
        penalty to a teacher, the teacher is the reference.

    With rollout.replay=kept, both are normalized over what the policy's own sampling keeps.
    Each step costs a forward pass of each model over the whole row, without a KV cache.
    info gains log_prob, ref_log_prob and kl (the penalty in nats, before the coefficient).
    """

    def __init__(self, env: gymnasium.Env, policy: Policy, reference: Policy):
        super().__init__(env)
        recipe = env.unwrapped.rules.plan.recipe  # type: ignore[attr-defined]
        kl = recipe.config.kl
        self.policy, self.reference = policy, reference
        self.coef, self.spread = kl.coef, kl.spread
        self.penalty = Bound.of(load_zoo().kl_penalties[kl.name], recipe.options("kl"))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Fields]:
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
    def _columns(self) -> Fields:
        """The row's columns, including those that a KL penalty may need."""
        columns = self.env.unwrapped.columns()  # type: ignore[attr-defined]
        device = self.policy.device
        columns = {n: x.to(device) if isinstance(x, Tensor) else x for n, x in columns.items()}
        if self.policy.replay:
            columns["kept_tokens"] = self.policy.kept_tokens(columns)
        columns["log_probs"] = columns["old_log_probs"] = self.policy.log_probs(columns)
        if "full_kl" in self.penalty.needs:
            columns |= self.policy.full_kl(columns, self.reference)
        else:
            columns["ref_log_probs"] = self.reference.log_probs(columns)
        return columns | {"teacher_log_probs": columns["ref_log_probs"]}
