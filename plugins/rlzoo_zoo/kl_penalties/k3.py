"""k3: the non-negative, low-variance estimate of the reverse KL."""

from rlzoo import component
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD


@component("kl_penalty", caution=IN_REWARD)
def k3(log_probs, ref_log_probs):
    """exp(-l) - 1 + l with l = log pi - log pi_ref, per token (B, T), in nats; never negative.

    As a loss, its expected gradient is that of the per-state *forward* KL; in the reward, its
    policy gradient differs from that of the KL. It grows like exp if the policy drops a token that
    is likely under the reference, so -l is clamped at 20. verl also caps the penalty at 10.
    Elsewhere: low_var_kl (verl).
    Source: Schulman 2020, "Approximating KL divergence"; Tang and Munos 2025, arXiv:2506.09477.
    """
    gap = (ref_log_probs - log_probs).clamp(max=20)
    return gap.expm1() - gap
