"""DRPO: DPPO's trust region as a smooth penalty that pulls back tokens that moved too far."""

from typing import Annotated

from rlzoo import Range, component


@component("policy_loss", needs_signal=True)
def drpo(
    log_probs,
    old_log_probs,
    advantages,
    *,
    eps: Annotated[float, Range(0, closed="right")] = 12.5,
):
    """-A rho + abs(A) pi_old (rho - 1)^2 / (2 eps) per token (B, T).

    `spo_simple` with an interval of eps / pi_old for each token: its gradient is that of -A rho
    times 1 - sign(A (rho - 1)) abs(pi - pi_old) / eps. With eps below 1, it changes sign where the
    token's probability has moved by eps, the edge of `dppo_tv`'s interval; with the paper's 12.5,
    which no probability can reach, the factor stays between 0.92 and 1.08, close to `surrogate`.
    log rho is clamped at 20. This is based on the authors' code and their description of the method
    (Tencent-Hunyuan/UniRL). It is not DRO (`dro`).
    Source: Yao et al. 2026, arXiv:2606.09821.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    penalty = advantages.abs() * old_log_probs.exp() * (ratio - 1).square() / (2 * eps)
    return penalty - ratio * advantages
