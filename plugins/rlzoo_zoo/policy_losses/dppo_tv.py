"""DPPO, total variation: masks a token by how far its probability moved, not by its ratio."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def dppo_tv(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.15,
    clip_high: Annotated[float, Range(0, 1)] = 0.15,
    cap: Annotated[float, Range(1)] = 20.0,
):
    """-A sg(min(rho, cap)) log pi on the trust mask, else 0, per token (B, T).

    A token is masked if A > 0 and pi - pi_old > clip_high, or A < 0 and pi_old - pi > clip_low.
    abs(pi - pi_old) is the total variation between "this token" and "any other". A token of
    probability 0.001 may double, but one of 0.9 may not fall to 0.7, which is the reverse of a
    ratio's clip. A moderate `cap` adds bias. In the paper, the anchor is the policy that sampled.
    Source: Qi et al. 2026, arXiv:2602.04879.
    """
    log_pi = log_probs.detach()
    ratio = (log_pi - old_log_probs).clamp(max=20).exp()
    moved = log_pi.exp() - old_log_probs.exp()
    high, low = (advantages > 0) & (moved > clip_high), (advantages < 0) & (moved < -clip_low)
    loss = -advantages * ratio.clamp(max=cap) * log_probs
    return torch.where(high | low, 0, loss), clip_fractions(high, low, loss.dtype)
