"""k2: half the squared log-ratio, the estimate to use as a loss."""

from rlzoo import component
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD


@component("kl_penalty", caution=IN_REWARD)
def k2(log_probs, ref_log_probs):
    """l^2 / 2 with l = log pi - log pi_ref, per token (B, T), in nats; never negative.

    As a loss, its expected gradient is exactly that of the per-state reverse KL if the samples come
    from the policy itself (later epochs would need the ratio as a weight). The bias of its value is
    of third order in l. In the reward, its policy gradient differs from that of the KL.
    Source: Schulman 2020, "Approximating KL divergence"; Tang and Munos 2025, arXiv:2506.09477.
    """
    return 0.5 * (log_probs - ref_log_probs).square()
