"""PPO with a second clip: a bad token that has become likely cannot dominate the step."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clipped_surrogate


@component("policy_loss", needs_signal=True)
def ppo_dual_clip(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
    c: Annotated[float, Range(1, closed="neither")] = 3.0,
):
    """ppo_clip, and if A < 0, at most -c A: min(max(-rho A, -clip(rho) A), -c A), (B, T).

    Beyond rho = c, a token with a negative advantage has no gradient, so nothing pulls it back;
    this is the cost of the bound. `pg_clipfrac_lower` is the share of tokens at the bound. This is
    verl's `vanilla`, where c is `clip_ratio_c`, also 3.
    Elsewhere: vanilla, clip_ratio_c (verl), two-sided clip (TRL), c_clip (AReaL).
    Source: Ye et al. 2019, arXiv:1912.09729.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    loss, metrics = clipped_surrogate(ratio, advantages, clip_low, clip_high)
    dual = (advantages < 0) & (ratio > c)
    loss = torch.where(dual, -c * advantages, loss)
    return loss, metrics | {"pg_clipfrac_lower": dual.to(loss.dtype)}
