"""VESPO: weights a response by a smooth kernel of its true sequence ratio."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_sum


@component("policy_loss", needs_signal=True)
def vespo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    k_pos: Annotated[float, Range(0, 20)] = 2.0,
    lam_pos: Annotated[float, Range(0, 20)] = 3.0,
    k_neg: Annotated[float, Range(0, 20)] = 3.0,
    lam_neg: Annotated[float, Range(0, 20)] = 2.0,
):
    """-sg(phi(W)) A log pi per token (B, T), phi(W) = W^k exp(lam (1 - W)), W = prod_t rho.

    W is that of the whole response, without length normalization; phi(1) = 1. k fades out responses
    that have become unlikely, lam those that have become likely; both depend on the sign of A (0
    counts as positive). It fails for long responses that are several steps off-policy: noise then
    moves W out of (0.1, 3), and most of the batch gets no weight. phi is clamped at e^20. The
    values are those of TRL.
    Source: Shen et al. 2026, arXiv:2602.10693.
    """
    log_w = masked_sum((log_probs - old_log_probs).detach(), response_mask)[:, None]  # (B, 1)
    k, lam = (
        torch.where(advantages >= 0, advantages.new_full((), pos), neg)
        for pos, neg in ((k_pos, k_neg), (lam_pos, lam_neg))
    )
    phi = (k * log_w + lam * (1 - log_w.clamp(max=80).exp())).clamp(max=20).exp()
    return -phi * advantages * log_probs, {"pg_weight": phi}
