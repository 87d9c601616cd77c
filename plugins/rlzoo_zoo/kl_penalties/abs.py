"""abs: the absolute value of the log-ratio."""

from rlzoo import component
from rlzoo.ops import absolute
from rlzoo_zoo.kl_penalties.k1 import IN_REWARD

IN_LOSS = {
    "kl.place = loss": (
        "it is not a KL estimate, so its expected gradient is not that of a KL; use k2"
    )
}


@component("kl_penalty", caution=IN_LOSS | IN_REWARD)
def abs(log_probs, ref_log_probs):
    """abs(l) with l = log pi - log pi_ref, per token (B, T), in nats; never negative.

    It does not estimate the KL: it is of first order in l and the KL of second, so it has more
    effect close to the reference. As a loss, its gradient is the sign of l, which fades to 0 within
    abs(l) < 1e-3, because at policy = reference the sign is rounding noise, which TRL and verl
    follow. In the reward, its policy gradient differs from that of the KL.
    Source: Ziegler et al. 2019, arXiv:1909.08593 (l itself); the absolute form is TRL's and verl's.
    """
    return absolute(log_probs - ref_log_probs)
