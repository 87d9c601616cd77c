"""VESPO: weigh a response by a smooth kernel of its true sequence ratio."""

from typing import Annotated

import torch

from rlzoo import Range, hookimpl
from rlzoo.ops import masked_sum


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

    W is the whole response's, without a root over its length; phi(1) = 1. k fades responses that
    have become unlikely, lam those that have become likely; k and lam go by the sign of A (0 counts
    as positive). Breaks for long responses several steps off-policy, where W leaves (0.1, 3) by
    noise and most of the batch gets no weight. phi is held below e^20. Values as in TRL.
    Source: Shen et al. 2026, arXiv:2602.10693.
    """
    log_w = masked_sum((log_probs - old_log_probs).detach(), response_mask)[:, None]  # (B, 1)
    k, lam = (
        torch.where(advantages >= 0, advantages.new_full((), pos), neg)
        for pos, neg in ((k_pos, k_neg), (lam_pos, lam_neg))
    )
    phi = (k * log_w + lam * (1 - log_w.clamp(max=80).exp())).clamp(max=20).exp()
    return -phi * advantages * log_probs, {"pg_weight": phi}


@hookimpl
def register_policy_losses(register):
    register(vespo, needs_signal=True)
