"""The ratio of the policy at rollout to the sampler, at the levels that corrections use."""

from typing import Any, Literal

import torch
from torch import Tensor

from rlzoo.ops import masked_mean, masked_sum

Level = Literal["token", "sequence", "geometric", "prefix"]


def log_ratio(old_log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, level: Level):
    """log(pi_old / mu) (B, T) in nats, with l_t = log pi_old - log mu at action t.

    token: l_t. sequence: the sum over the response, at each of its tokens. geometric: its mean.
    prefix: the sum over the actions up to t, so each token is weighed by how likely its state and
    itself are (CTPO, arXiv:2605.07331): unbiased, with less variance than `sequence`.
    """
    gap = torch.where(mask.bool(), old_log_probs - sampler_log_probs, 0)
    if level == "prefix":
        return gap.cumsum(-1)
    if level == "token":
        return gap
    whole = masked_sum(gap, mask)
    if level == "geometric":
        whole = whole / mask.bool().sum(-1).clamp(min=1)
    return whole[:, None].expand_as(gap)


def of_mean_1(weights: Tensor, mask: Tensor) -> Tensor:
    """The weights (B, T) divided by their mean over the batch's actions; as they are if all 0."""
    mean = masked_mean(weights, mask)
    return torch.where(mean > 0, weights / mean.clamp(min=1e-30), weights)


def measure(plan: Any, batch: Any) -> dict[str, float]:
    """A step's metrics of its correction, over all actions: `correction/ess`, (sum w)^2 / (N sum
    w^2) of the weights, and the mean and largest pi_old / mu before it is bounded, at the level of
    `tis` and `icepop`, otherwise of tokens. An entry point of the group `rlzoo.measures`."""
    if plan.correction is None:
        return {}
    mask = batch["response_mask"].bool()
    bound = next(column for column in plan.columns if column.name == plan.correction)
    level: Level = "token"
    if bound.component.name in ("tis", "icepop"):
        level = bound.options["level"]
    ratio = log_ratio(batch["old_log_probs"], batch["sampler_log_probs"], mask, level)[mask]
    weights, before = batch[plan.correction][mask].double(), ratio.double().clamp(max=700).exp()
    if not mask.any():
        return {}
    squares = weights.square().sum().item() * len(weights)
    return {
        "correction/ess": weights.sum().item() ** 2 / squares if squares else 0.0,
        "correction/unbounded_mean": before.mean().item(),
        "correction/unbounded_max": before.max().item(),
    }
