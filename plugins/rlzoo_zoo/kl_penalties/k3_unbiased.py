"""k3 weighted by the importance ratio: as a loss, it has the gradient of the KL at any ratio."""

from rlzoo import component
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD


@component("kl_penalty", caution=IN_REWARD)
def k3_unbiased(log_probs, ref_log_probs, old_log_probs):
    """rho (exp(-l) - 1 + l) with l = log pi - log pi_ref, rho = pi / pi_old, per token, in nats.

    The gradient also flows through rho, so that under pi_old the mean is the state's reverse KL and
    the mean gradient is its gradient, even if rho is not 1. Plain k3 has the gradient of the
    forward KL, and it explodes if the policy has dropped a token that is likely under the
    reference; here rho compensates for this. At rollout, rho is 1, so in the reward it equals k3.
    -l and log rho are clamped at 20. The formula comes from two detailed summaries, TRL's
    `use_bias_correction_kl` and slime's code, not from the report.
    Elsewhere: use_bias_correction_kl (TRL).
    Source: DeepSeek-AI 2025 (V3.2), arXiv:2512.02556; the weight follows Tang and Munos 2025,
    arXiv:2506.09477.
    """
    gap = (ref_log_probs - log_probs).clamp(max=20)
    return (log_probs - old_log_probs).clamp(max=20).exp() * (gap.expm1() - gap)
