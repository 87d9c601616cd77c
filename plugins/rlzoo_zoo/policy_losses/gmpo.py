"""GMPO: the geometric mean of a response's ratios, so that no single token dominates."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_sum
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def gmpo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    clip_low: Annotated[float, Range(0)] = 0.4,
    clip_high: Annotated[float, Range(0)] = 0.4,
):
    """-A exp(mean_t l_t) at each action, (B, T); l = log rho, clipped against A's own direction.

    l_t = min(log rho, clip_high) if A >= 0 and max(log rho, -clip_low) if A < 0. The bounds are in
    nats, so those of the ratio are e^-0.4 and e^0.4. With one advantage per response and
    seq_mean_token_mean, this is the paper's objective. It fails with advantages that differ within
    a response, because each ratio then has the response's mean advantage, but the sign for clipping
    is that of each token. verl uses a different aggregation and sets l = 0 at A = 0.
    Elsewhere: geo_mean (verl).
    Source: Zhao et al. 2025, arXiv:2507.20673.
    """
    log_ratio = log_probs - old_log_probs
    bounded = torch.where(
        advantages >= 0, log_ratio.clamp(max=clip_high), log_ratio.clamp(min=-clip_low)
    )
    length = response_mask.bool().sum(-1).clamp(min=1)
    ratio = (masked_sum(bounded, response_mask) / length).clamp(max=20).exp()[:, None]
    loss = -advantages * ratio
    high = (log_ratio > clip_high) & (advantages > 0)
    low = (log_ratio < -clip_low) & (advantages < 0)
    return loss, clip_fractions(high, low, loss.dtype)
