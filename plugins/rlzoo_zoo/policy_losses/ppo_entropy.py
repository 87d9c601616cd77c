"""PPO's clip with an entropy bonus whose coefficient is a column and can adapt."""

from typing import Annotated

import torch

from rlzoo import Range, hookimpl


def ppo_entropy(
    log_probs,
    old_log_probs,
    advantages,
    entropy,
    entropy_coef,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """ppo_clip per token (B, T), minus `entropy_coef` times the policy's entropy there.

    The column `entropy_coef` adapts the bonus to the entropy; its options are under
    columns.entropy_coef. `actor.entropy_coef` would be added to it. With a bonus of 0, this is
    `ppo_clip`. The aggregation weights the bonus like the loss, so only token_mean gives TRL's mean
    entropy per token. A correction also weights the bonus.
    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, with TRL's adaptive coefficient.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    high = ((ratio > 1 + clip_high) & (advantages > 0)).to(loss.dtype)
    low = ((ratio < 1 - clip_low) & (advantages < 0)).to(loss.dtype)
    return loss - entropy_coef * entropy, {
        "pg_clipfrac_high": high,
        "pg_clipfrac_low": low,
        "pg_clipfrac": high + low,
        "entropy_bonus": entropy_coef,
    }


@hookimpl
def register_policy_losses(register):
    register(ppo_entropy)
