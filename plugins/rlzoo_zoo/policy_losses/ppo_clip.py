"""PPO's clipped surrogate."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("policy_loss", needs_signal=True)
def ppo_clip(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A), rho = pi / pi_old, per token (B, T).

    This is a pessimistic bound: a token has no gradient once its ratio has left the interval in the
    direction of its advantage. clip_high > clip_low is DAPO's clip-higher (arXiv:2503.14476). It
    fails when A < 0 and rho is large, because the loss is then unbounded; verl's `vanilla`
    therefore always adds dual clipping, which is `ppo_dual_clip` here. log rho is clamped at 20, as
    in verl.
    Source: Schulman et al. 2017, arXiv:1707.06347.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    return clipped_surrogate(ratio, advantages, clip_low, clip_high)


def clipped_surrogate(ratio, advantages, clip_low, clip_high):
    """The loss and its metrics, (B, T), for importance ratios `ratio` (B, T)."""
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    high = (ratio > 1 + clip_high) & (advantages > 0)
    low = (ratio < 1 - clip_low) & (advantages < 0)
    return loss, clip_fractions(high, low, loss.dtype)


def clip_fractions(high, low, dtype):
    """The metrics of tokens (B, T) bool that left the interval at its upper or lower end."""
    high, low = high.to(dtype), low.to(dtype)
    return {"pg_clipfrac_high": high, "pg_clipfrac_low": low, "pg_clipfrac": high + low}
