"""A*-PO's advantage: a response's reward minus the optimal value of its prompt."""

from rlzoo import component

ZERO = "the loss regresses on the advantage's value, including its zero"


@component("estimator", caution={"whiten != none": ZERO, "kl.place = reward": ZERO})
def a_star_po(sequence_scores, response_mask, optimal_values):
    """A_i = R_i - V*(x) at every token, R `sequence_scores` (B,), V* `optimal_values` (B,).

    V* belongs to the best policy near the reference, not to the current one, so it needs no critic
    and no group, and one response per prompt is enough. At the optimum, A equals beta log(pi /
    pi_ref), so the loss `a_star_po` can regress on it. As a baseline, V* is too high: all but the
    best responses become less likely. It fails with whitening, or with a KL in the reward, because
    both shift the zero.
    Source: Brantley et al. 2025, arXiv:2505.20686.
    """
    return (sequence_scores - optimal_values)[:, None] * response_mask
