"""RIPO: PPO's clip with an interval for each token, which is wider for unlikely tokens."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def ripo(
    log_probs,
    old_log_probs,
    advantages,
    *,
    delta_low: Annotated[float, Range(0, closed="right")] = 0.05,
    delta_high: Annotated[float, Range(0, closed="right")] = 0.05,
    ratio_min: Annotated[float, Range(0, 1)] = 0.5,
    ratio_max: Annotated[float, Range(1)] = 10.0,
):
    """ppo_clip per token (B, T) between 1 - eps and 1 + eps, eps = sqrt(delta / pi_old), within
    [ratio_min, ratio_max].

    To second order, a token's share of KL(pi_old, pi) is pi_old (rho - 1)^2 / 2. A fixed interval
    lets a likely token move far and an unlikely one hardly at all; this interval allows the same KL
    for each (at most delta / 2 nats). A token of probability 0.8 may move between 0.6 and 1.0, one
    of 0.01 up to 0.032. ratio_min applies to tokens with a probability below 0.2. The authors found
    that training fails with delta_high much larger than delta_low. log rho is clamped at 20. This
    is based on two detailed summaries and one reimplementation, which agree on the formula, delta
    and the outer bounds, not on the paper itself. The authors published no code.
    Source: Cai et al. 2026, arXiv:2607.10169.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    shrink = (-old_log_probs / 2).clamp(max=20).exp()  # 1 / sqrt(pi_old)
    bottom = (1 - delta_low**0.5 * shrink).clamp(min=ratio_min)
    top = (1 + delta_high**0.5 * shrink).clamp(max=ratio_max)
    clipped = torch.minimum(torch.maximum(ratio, bottom), top)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    high, low = (ratio > top) & (advantages > 0), (ratio < bottom) & (advantages < 0)
    return loss, clip_fractions(high, low, loss.dtype)
