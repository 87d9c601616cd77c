"""k3 with the gradient that a KL loss should have."""

from rlzoo import component
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD


@component("kl_penalty", caution=IN_REWARD)
def k3_plus(log_probs, ref_log_probs):
    """sg(k3) + k2 - sg(k2) per token (B, T), in nats: the value of k3, the gradient of k2.

    It is a straight-through estimate: its value has low variance, and as a loss it has the
    per-state reverse-KL gradient, which k3 lacks. In the reward, it equals k3. The value clamps -l
    at 20, as k3 does; the gradient is that of k2 at any distance. verl calls it `k3+`.
    Source: Tang and Munos 2025, arXiv:2506.09477; Liu et al. 2025, arXiv:2510.01555.
    """
    gap = ref_log_probs - log_probs
    k2, bounded = 0.5 * gap.square(), gap.detach().clamp(max=20)
    return k2 - k2.detach() + (bounded.expm1() - bounded)
