"""rlzoo in TRL: `ZooGRPOTrainer`, a GRPOTrainer with an estimator and a policy loss of the zoo.

    trainer = ZooGRPOTrainer(model=..., reward_funcs=..., args=GRPOConfig(...), estimator="maxrl",
                             policy_loss="cispo", loss_options={"clip_high": 0.3})

It samples, scores and aggregates like GRPOTrainer: `loss_type` sets how a loss of rlzoo is averaged
(grpo, bnpo, dr_grpo, dapo or luspo), and `beta` is the coefficient of a KL in the loss.
`scale_rewards` and the clip ranges of GRPOConfig belong to TRL's own advantages and losses and have
no effect here.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from rlzoo.errors import ComponentError
from rlzoo.ops import at_last_action, masked_mean
from rlzoo_bridges import calls
from rlzoo_bridges.columns import Columns
from rlzoo_bridges.hosts import HOSTS

HOST = HOSTS["trl"]
AGGREGATIONS = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
# Features of TRL's own loss: an attribute of the trainer, and the value that turns it off.
PLAIN = {
    "_entropy_bonus_enabled": False,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "importance_sampling_level": "token",
    "aux_loss_enabled": False,
}


class ZooGRPOTrainer(GRPOTrainer):
    """GRPOTrainer with advantages from `estimator` and the loss `policy_loss` of the zoo.

    options, loss_options: those of the estimator and the loss. policy_loss None: TRL's own loss.
    """

    def __init__(
        self,
        *args: Any,
        estimator: str = "grpo",
        options: Mapping[str, Any] | None = None,
        policy_loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        self._zoo_estimator, self._zoo_options = estimator, dict(options or {})
        self._zoo_loss, self._zoo_loss_options = policy_loss, dict(loss_options or {})
        calls.find(HOST, "estimators", estimator, self._zoo_options)
        if policy_loss is not None:
            calls.find(HOST, "policy_losses", policy_loss, self._zoo_loss_options)
        super().__init__(*args, **kwargs)
        if policy_loss is not None:
            self._check_plain()

    def _check_plain(self) -> None:
        """Whatever TRL's own loss would do, and this one does not, is refused."""
        if self.loss_type not in AGGREGATIONS:
            raise ComponentError(
                f"rlzoo in TRL: loss_type sets how policy_loss={self._zoo_loss} is averaged, "
                f"and must be one of {', '.join(AGGREGATIONS)}. Got {self.loss_type!r}"
            )
        for name, plain in PLAIN.items():
            value = getattr(self, name, plain)
            if value != plain:
                raise ComponentError(
                    f"rlzoo in TRL: {name.strip('_')} belongs to TRL's own loss; with "
                    f"policy_loss={self._zoo_loss} it must be {plain}. Got {value}"
                )

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        self._zoo_scores = super()._calculate_rewards(*args, **kwargs)  # (rows of all ranks, K)
        return self._zoo_scores

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        out = super()._generate_and_score_completions(inputs)
        mask = _actions(out)
        wide = self.accelerator.gather(self.accelerator.pad_across_processes(mask, dim=1))
        advantages, _ = calls.estimate(
            HOST, self._zoo_estimator, self._columns(wide), self._zoo_options
        )
        first = self.accelerator.process_index * len(mask)
        own = advantages[first : first + len(mask)]
        out["advantages"] = own[:, : mask.shape[1]]  # TRL takes (B, T)
        self._tell(advantages, wide)
        return out

    def _columns(self, mask: Tensor) -> Columns:
        """The rows of all ranks, mask (B, T), by rlzoo's names."""
        scores = self._zoo_scores.float().nan_to_num(0.0)
        weights = self.reward_weights.to(scores)
        samples = self.num_generations if self.model.training else self.num_generations_eval
        rewards = at_last_action(scores @ weights, mask)
        own = {
            "rewards": rewards,
            "scores": rewards,
            "response_mask": mask.to(rewards.dtype),
            "group_ids": torch.arange(len(mask), device=mask.device) // samples,
            "score_components": scores,
            "score_weights": weights,
        }
        return Columns(HOST, own)

    def _tell(self, advantages: Tensor, mask: Tensor) -> None:
        """TRL's table of completions has a number for each: the mean over its actions."""
        logged = self._logs.get("advantages")
        rows = (advantages.sum(1) / mask.sum(1).clamp(min=1)).tolist()
        if logged is not None and len(logged) >= len(rows):
            for _ in rows:
                logged.pop()
            logged.extend(rows)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if self._zoo_loss is None:
            return super()._compute_loss(model, inputs)
        mask = _actions(inputs)
        log_probs, entropy, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            mask.shape[1],
            compute_entropy=True,
        )
        old = inputs.get("old_per_token_logps")
        old = log_probs.detach() if old is None else old
        losses, metrics = calls.lose(
            HOST, self._zoo_loss, log_probs, old, inputs["advantages"], mask, self._zoo_loss_options
        )
        if "importance_sampling_ratio" in inputs:
            losses = losses * inputs["importance_sampling_ratio"]
        if self.beta != 0.0:  # k3, as TRL has it
            gap = inputs["ref_per_token_logps"] - log_probs
            kl = torch.exp(gap) - gap - 1
            if self.args.use_bias_correction_kl:
                kl = kl * torch.exp(log_probs - old)
            losses = losses + self.beta * kl
            metrics["kl"] = masked_mean(kl.detach(), mask).item()
        metrics["entropy"] = masked_mean(entropy.detach(), mask).item()
        mode = "train" if self.model.training else "eval"
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)
        return self._aggregate(losses * mask, mask, inputs, mode)

    def _aggregate(self, losses: Tensor, mask: Tensor, inputs: dict[str, Any], mode: str) -> Tensor:
        """The loss as TRL averages it, over its steps of gradient accumulation."""
        steps = self.current_gradient_accumulation_steps if mode == "train" else 1.0
        if self.loss_type == "dapo":
            items = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
            per = self.args.steps_per_generation if mode == "train" else 1.0
            return losses.sum() / (items * steps / per)
        if self.loss_type == "bnpo":
            return masked_mean(losses, mask) / steps
        if self.loss_type == "luspo":
            return losses.sum(1).mean() / steps
        if self.loss_type == "dr_grpo":
            return losses.sum() / (len(mask) * self.max_completion_length) / steps
        return (losses.sum(1) / mask.sum(1).clamp(min=1)).mean() / steps


def _actions(batch: Mapping[str, Any]) -> Tensor:
    """1 where the model chose the token, (B, T)."""
    return batch["completion_mask"] * batch.get("tool_mask", 1)
