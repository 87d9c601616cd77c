"""DPPO, binary KL: masks a token by how far its distribution moved, not by its ratio."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def dppo_kl(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0)] = 0.05,
    clip_high: Annotated[float, Range(0)] = 0.05,
    cap: Annotated[float, Range(1)] = 20.0,
):
    """-A sg(min(rho, cap)) log pi on the trust mask, else 0, per token (B, T).

    A token is masked if d = p log(p/q) + (1-p) log((1-p)/(1-q)), in nats, with p = pi_old and q =
    pi, exceeds clip_high with A > 0 and q > p, or clip_low with A < 0 and q < p. d is the KL
    between "this token" and "any other", a lower bound of the KL over the vocabulary. A token that
    moved against its advantage is never masked. 1e-8 is added to 1 - p and 1 - q as in verl.
    Source: Qi et al. 2026, arXiv:2602.04879.
    """
    log_pi = log_probs.detach()
    ratio = (log_pi - old_log_probs).clamp(max=20).exp()
    p, q = old_log_probs.exp(), log_pi.exp()
    rest = ((1 - p + 1e-8) / (1 - q + 1e-8)).log()
    far = p * (old_log_probs - log_pi) + (1 - p) * rest
    high = (advantages > 0) & (q > p) & (far > clip_high)
    low = (advantages < 0) & (q < p) & (far > clip_low)
    loss = -advantages * ratio.clamp(max=cap) * log_probs
    return torch.where(high | low, 0, loss), clip_fractions(high, low, loss.dtype)
