"""MaxRL: the group-centered score divided by its mean, between expected reward and likelihood."""

import torch

from rlzoo import component, group_degenerate, group_mean


@component("estimator")
def maxrl(sequence_scores, response_mask, group_ids):
    """A_i = (R_i - mean_g R) / mean_g R at every token; zeros if no answer is correct.

    R is `sequence_scores` (B,), 0/1. The mean of A grad log pi over the group is an unbiased
    gradient of
    -sum_{k=1}^{G-1} (1 - p)^k / k, the series of log p truncated after G - 1 terms: G = 2 gives
    expected reward, G -> infinity maximum likelihood. A prompt thus has the weight 1/p, compared
    with 1 in RLOO and 1/sqrt(p (1 - p)) in GRPO. A group of one, or of equal scores, gives exact
    zeros. It fails on scores that are not 0/1: the mean is then not a probability, and near or
    below 0 it is meaningless (a mean of 0 or less gives zeros).
    Source: Tajwar et al. 2026, arXiv:2602.02710.
    """
    mean = group_mean(sequence_scores, group_ids)
    zero = group_degenerate(sequence_scores, group_ids) | (mean <= 0)
    scaled = (sequence_scores - mean) / torch.where(zero, 1, mean)
    return torch.where(zero, 0, scaled)[:, None] * response_mask
