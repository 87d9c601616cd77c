"""RLOO: a response's reward minus the mean reward of the other samples of its prompt."""

import torch

from rlzoo import component, group_count, group_degenerate, group_mean


@component("estimator")
def rloo(sequence_rewards, response_mask, group_ids):
    """A_i = R_i - mean_{j != i} R_j = G / (G - 1) (R_i - mean_g R) at every token.

    R is `sequence_rewards` (B,). The leave-one-out baseline does not depend on its own sample, so
    the gradient is unbiased for any G >= 2. A group of one gives zeros (verl's loop returns the raw
    reward, its vectorized form 0). It fails on long responses with rewards per token, because every
    token gets the whole return as credit.
    Source: Ahmadian et al. 2024, arXiv:2402.14740.
    """
    size = group_count(group_ids)
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    advantage = centered * size / (size - 1).clamp(min=1)
    flat = group_degenerate(sequence_rewards, group_ids)
    return torch.where(flat, 0, advantage)[:, None] * response_mask
