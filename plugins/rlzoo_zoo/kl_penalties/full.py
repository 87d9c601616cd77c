"""full: the exact KL of each state, over the whole vocabulary."""

from rlzoo import component
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD

IN_LOSS = {
    "kl.place = loss": (
        "full_kl is computed at rollout without a gradient, so it has no effect there"
    )
}


@component("kl_penalty", caution=IN_LOSS | IN_REWARD)
def full(full_kl):
    """sum_v pi(v|s) log(pi(v|s) / pi_ref(v|s)) per token (B, T), in nats, without sampling noise.

    `full_kl` is computed with the log-prob head at rollout and has no gradient, so it belongs in
    the reward. There it lacks the part of the gradient that acts through the current token; the
    exact gradient would need the state-wise KL as a loss *plus* the future full KL as reward. It is
    useful for measuring.
    Source: Tang and Munos 2025, arXiv:2506.09477.
    """
    return full_kl
