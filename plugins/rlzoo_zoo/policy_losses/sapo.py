"""SAPO: a smooth gate instead of a clip."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("policy_loss", needs_signal=True)
def sapo(
    log_probs,
    old_log_probs,
    advantages,
    *,
    tau_pos: Annotated[float, Range(0, closed="right")] = 1.0,
    tau_neg: Annotated[float, Range(0, closed="right")] = 1.05,
):
    """-A (4 / tau) sigmoid(tau (rho - 1)) per token (B, T); tau_pos if A > 0, otherwise tau_neg.

    Its gradient is REINFORCE's at rho = 1, times rho sech^2(tau (rho - 1) / 2) elsewhere: it fades
    instead of stopping. tau_neg > tau_pos lets bad tokens fade sooner, since making one less likely
    raises all others. tau near 0 gives `surrogate`. The paper and verl aggregate with
    seq_mean_token_mean. log rho is clamped at 20, as in verl.
    Source: Gao et al. 2025, arXiv:2511.20347.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    tau = torch.where(advantages > 0, advantages.new_full((), tau_pos), tau_neg)
    return -advantages * (4 / tau) * torch.sigmoid(tau * (ratio - 1))
