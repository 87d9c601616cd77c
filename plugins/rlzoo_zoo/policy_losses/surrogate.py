"""The surrogate of conservative policy iteration and TRPO: importance-weighted, unclipped."""

from rlzoo import component


@component("policy_loss", needs_signal=True)
def surrogate(log_probs, old_log_probs, advantages):
    """-rho A with rho = pi / pi_old, per token (B, T).

    At rho = 1, its gradient is REINFORCE's; otherwise it weights each token by its own ratio and
    ignores that earlier tokens changed the states. rho is unbounded, so use it with few small steps
    or with a KL penalty. log rho is clamped at 20 (rho < 5e8), as in verl: exp overflows float32 at
    88.
    Source: Schulman et al. 2015, arXiv:1502.05477.
    """
    return -(log_probs - old_log_probs).clamp(max=20).exp() * advantages
