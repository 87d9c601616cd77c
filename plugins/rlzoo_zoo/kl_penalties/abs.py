"""abs: the size of the log-ratio, whichever way it went."""

from rlzoo import hookimpl
from rlzoo.ops import absolute


def abs(log_probs, ref_log_probs):
    """abs(l) with l = log pi - log pi_ref, per token (B, T), in nats; never negative.

    No estimate of the KL: it is of first order in l where the KL is of second, so it stays felt
    close to the reference. As a loss its gradient is the sign of l, which fades to 0 within
    abs(l) < 1e-3: at policy = reference the sign is that of rounding noise, which TRL and verl
    follow. In the reward it points elsewhere than the KL's.
    Source: Ziegler et al. 2019, arXiv:1909.08593 (l itself); the absolute form is TRL's and verl's.
    """
    return absolute(log_probs - ref_log_probs)


@hookimpl
def register_kl_penalties(register):
    register(
        abs,
        caution={
            "kl.place = loss": "it is not a KL estimate: its expected gradient is not that of a "
            "KL; use k2",
            "kl.place = reward": "its policy gradient is not that of the KL; only k1 gives "
            "that in the reward",
        },
    )
