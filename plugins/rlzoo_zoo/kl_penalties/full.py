"""full: the exact KL of each state, over the whole vocabulary."""

from rlzoo import hookimpl


def full(full_kl):
    """sum_v pi(v|s) log(pi(v|s) / pi_ref(v|s)) per token (B, T), in nats: no sampling noise.

    `full_kl` is made from the log-prob head at rollout and carries no gradient, so it belongs in
    the reward. There it lacks the part of the gradient that acts through the current token: exact
    would be the state-wise KL as a loss *plus* the future full KL as reward. Useful for measuring.
    Source: Tang and Munos 2025, arXiv:2506.09477.
    """
    return full_kl


@hookimpl
def register_kl_penalties(register):
    register(
        full,
        caution={
            "kl.place = loss": "full_kl is made at rollout and has no gradient: it does nothing "
            "there",
            "kl.place = reward": "its policy gradient is not that of the KL; only k1 gives "
            "that in the reward",
        },
    )
