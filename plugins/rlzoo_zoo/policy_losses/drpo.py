"""DRPO: DPPO's trust region as a smooth penalty: a token that went too far is pulled back."""

from typing import Annotated

from rlzoo import Range, hookimpl


def drpo(
    log_probs,
    old_log_probs,
    advantages,
    *,
    eps: Annotated[float, Range(0, closed="right")] = 12.5,
):
    """-A rho + abs(A) pi_old (rho - 1)^2 / (2 eps) per token (B, T).

    `spo_simple` with an interval of eps / pi_old for each token: its gradient is that of -A rho
    times 1 - sign(A (rho - 1)) abs(pi - pi_old) / eps. With eps below 1 it turns round where the
    token's probability has moved by eps, the edge of `dppo_tv`'s interval; with the paper's 12.5,
    which no probability can move by, the factor stays within 1 - 0.08 and 1 + 0.08, close to
    `surrogate`. log rho is held below 20. Read: the authors' code and their account of the method
    (Tencent-Hunyuan/UniRL). Not DRO (`dro`).
    Source: Yao et al. 2026, arXiv:2606.09821.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    penalty = advantages.abs() * old_log_probs.exp() * (ratio - 1).square() / (2 * eps)
    return penalty - ratio * advantages


@hookimpl
def register_policy_losses(register):
    register(drpo, needs_signal=True)
