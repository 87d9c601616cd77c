"""A*-PO's advantage: a response's reward minus the optimal value of its prompt."""

from rlzoo import hookimpl


def a_star_po(sequence_scores, response_mask, optimal_values):
    """A_i = R_i - V*(x) at every token, R `sequence_scores` (B,), V* `optimal_values` (B,).

    V* is that of the best policy near the reference, not of the current one: no critic, no group,
    one response a prompt is enough. It is what beta log(pi / pi_ref) is at the optimum, so that the
    loss `a_star_po` can regress on it. As a baseline it is too high, and all but the best responses
    are pushed down. Breaks with whitening, or with a KL in the reward: the zero matters.
    Source: Brantley et al. 2025, arXiv:2505.20686.
    """
    return (sequence_scores - optimal_values)[:, None] * response_mask


ZERO = "the loss regresses on the advantage's value, zero included"


@hookimpl
def register_estimators(register):
    register(a_star_po, caution={"whiten != none": ZERO, "kl.place = reward": ZERO})
