"""k1: the log-ratio, the plain unbiased estimate of the reverse KL."""

from rlzoo import component

NOISE = "its expected gradient is zero, so it only adds noise there"
IN_REWARD = {  # of all others
    "kl.place = reward": (
        "its policy gradient is not that of the KL; only k1 gives that in the reward"
    )
}


@component("kl_penalty", caution={"kl.place = loss": f"{NOISE}; use k2"})
def k1(log_probs, ref_log_probs):
    """l = log pi - log pi_ref per token (B, T), in nats; its mean under pi is KL(pi || pi_ref).

    In the reward (gamma = lam = 1), it is the only form whose policy gradient is that of the
    sequence's reverse KL. As a loss, its expected gradient is zero, so it has no effect there.
    Source: Schulman 2020, "Approximating KL divergence"; Tang and Munos 2025, arXiv:2506.09477.
    """
    return log_probs - ref_log_probs
