"""MaxRL: the group-centred score over its mean, on the way from expected reward to likelihood."""

import torch

from rlzoo import group_degenerate, group_mean, hookimpl


def maxrl(sequence_scores, response_mask, group_ids):
    """A_i = (R_i - mean_g R) / mean_g R at every token; zeros where no answer is right.

    R is `sequence_scores` (B,), 0/1. Its mean over the group is an unbiased gradient of
    -sum_{k=1}^{G-1} (1 - p)^k / k, the series of log p cut after G - 1 terms: G = 2 gives
    expected reward, G -> infinity maximum likelihood. So a prompt weighs 1/p, where RLOO weighs 1
    and GRPO 1/sqrt(p (1 - p)). A group of one, or of equal scores, gives exact zeros. Breaks on
    scores that are not 0/1: the mean is then no probability, and near 0 or below it means nothing
    (a mean of 0 or less gives zeros).
    Source: Tajwar et al. 2026, arXiv:2602.02710.
    """
    mean = group_mean(sequence_scores, group_ids)
    zero = group_degenerate(sequence_scores, group_ids) | (mean <= 0)
    scaled = (sequence_scores - mean) / torch.where(zero, 1, mean)
    return torch.where(zero, 0, scaled)[:, None] * response_mask


@hookimpl
def register_estimators(register):
    register(maxrl)
