"""k1 with the gradient that a KL loss should have."""

from rlzoo import component


@component("kl_penalty")
def k1_plus(log_probs, ref_log_probs):
    """sg(k1) + k2 - sg(k2) per token (B, T), in nats: the value of k1, the gradient of k2.

    It is a straight-through estimate: its value is unbiased, and as a loss it has the per-state
    reverse-KL gradient, which k1 lacks. In the reward, it equals k1. verl calls it `k1+`.
    Source: Tang and Munos 2025, arXiv:2506.09477; Liu et al. 2025, arXiv:2510.01555.
    """
    gap = log_probs - ref_log_probs
    k2 = 0.5 * gap.square()
    return k2 - k2.detach() + gap.detach()
