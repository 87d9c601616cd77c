"""k3 of the whole response: one estimate of the KL between distributions of responses."""

from rlzoo import component
from rlzoo.ops import at_last_action, masked_sum
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD


@component("kl_penalty", caution=IN_REWARD)
def k3_sequence(log_probs, ref_log_probs, response_mask):
    """exp(-l) - 1 + l at the last action, with l = sum_t (log pi - log pi_ref), in nats.

    Its mean is the KL per response, as is that of `k3` summed over tokens; its expected gradient as
    a loss is that of KL(pi_ref, pi) between responses. The ratio of a whole response varies far
    more than a token's, so it suits short responses near the reference. Aggregate it with
    seq_mean_token_sum. -l is clamped at 20.
    Source: Schulman 2020, "Approximating KL divergence"; over responses in the code of Kaddour
    2026, arXiv:2604.06159.
    """
    gap = masked_sum(ref_log_probs - log_probs, response_mask).clamp(max=20)
    return at_last_action(gap.expm1() - gap, response_mask)
