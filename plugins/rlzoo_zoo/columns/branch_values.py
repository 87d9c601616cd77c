"""V^ by branching: the mean remaining score of fresh rollouts, which VinePPO uses as values."""

from rlzoo import component


@component("column", shape="BT")
def branch_values(branch_scores):
    """V^ at each token (B, T): the mean over K of `branch_scores` (B, T, K) of its step's start.

    Unbiased; `branch_intervals` gives its interval.
    Source: Kazemnejad et al. 2024, arXiv:2410.01679.
    """
    return branch_scores.mean(2)
