"""SPO: a quadratic penalty on the ratio that is tight at the edge of the trust interval."""

from typing import Annotated

from rlzoo import Range, component


@component("policy_loss", needs_signal=True)
def spo_simple(
    log_probs,
    old_log_probs,
    advantages,
    *,
    eps: Annotated[float, Range(0, closed="right")] = 0.2,
):
    """-(rho A - abs(A) (rho - 1)^2 / (2 eps)) per token (B, T).

    Its optimum for each token is rho = 1 + eps sign(A), the edge of PPO's interval. A token that
    has moved too far is pulled back, unlike with clipping. It fails for rare tokens with large
    steps, for which (rho - 1)^2 explodes. log rho is clamped at 20.
    Source: Xie et al. 2024, arXiv:2401.16025.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    penalty = advantages.abs() * (ratio - 1).square() / (2 * eps)
    loss = penalty - ratio * advantages
    outside = ((ratio - 1).abs() > eps).to(loss.dtype)
    return loss, {"pg_clipfrac": outside}
