"""Clip-Cov: ignores a few of the tokens that drive the entropy down."""

from typing import Annotated

import torch

from rlzoo import Range, component, masked_mean
from rlzoo_zoo.policy_losses.ppo_clip import ppo_clip


@component("policy_loss", couples="batch")
def clip_cov(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    noise,
    *,
    fraction: Annotated[float, Range(0, 1, closed="right")] = 2e-4,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
    clip_low: Annotated[float, Range(0, 1)] = 1.0,
    clip_high: Annotated[float, Range(0)] = 1.0,
):
    """ppo_clip per token (B, T), but 0 on a few tokens whose log pi and A covary.

    cov = (A - mean A)(log pi - mean log pi), means over the mini-batch's actions; entropy falls
    with its mean. Among the tokens with cov_low < cov < cov_high that PPO does not clip, `noise`
    selects max(1, floor(fraction N)), where N is the number of actions. This couples the
    mini-batch. cov is in units of A times nats, so the defaults need whitened advantages. The clip
    interval is wide, as in the authors' scripts; the paper's formula has no clip. verl selects new
    tokens each time; here the selection is fixed within a step.
    Source: Cui et al. 2025, arXiv:2505.22617.
    """
    mask = response_mask.bool()
    loss, metrics = ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high
    )
    log_pi = log_probs.detach()
    cov = (advantages - masked_mean(advantages, mask)) * (log_pi - masked_mean(log_pi, mask))
    open_to_it = mask & (cov > cov_low) & (cov < cov_high) & (metrics["pg_clipfrac"] == 0)
    lot = torch.where(open_to_it, noise, torch.inf)
    count = max(1, int(fraction * response_mask.bool().sum()))
    drawn = open_to_it & (lot <= lot.flatten().sort().values[count - 1])
    ignored = drawn.to(loss.dtype)
    metrics |= {"pg_clipfrac_cov": ignored, "pg_clipfrac": metrics["pg_clipfrac"] + ignored}
    return torch.where(drawn, 0, loss), metrics
