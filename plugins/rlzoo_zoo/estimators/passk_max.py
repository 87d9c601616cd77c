"""Pass@k from the group's maximum: only the best response gets credit, by its lead over the
second."""

import torch

from rlzoo import component, group_degenerate, group_sum
from rlzoo.ops import group_max


@component("estimator")
def passk_max(sequence_rewards, response_mask, group_ids):
    """A_i = max_g R - max_{j != i} R_j at every token: R_max - R_2nd for the best, 0 for the rest.

    R is `sequence_rewards` (B,). A_i is how much the group's maximum falls without the sample.
    Summed over the group, it gives an unbiased gradient of E[max of G rewards], which is pass@G for
    0/1 rewards. A tie for the best gives zeros, as do a group of one and a group of equal rewards.
    By default, verl divides by the group's std. It fails on easy prompts: two correct answers in a
    group leave no signal.
    Elsewhere: grpo_passk (verl).
    Source: Tang et al. 2025, arXiv:2503.19595.
    """
    best = sequence_rewards == group_max(sequence_rewards, group_ids)
    second = group_max(torch.where(best, -torch.inf, sequence_rewards), group_ids)
    only = best & (group_sum(best.to(sequence_rewards.dtype), group_ids) == 1)
    zero = ~only | group_degenerate(sequence_rewards, group_ids)
    return torch.where(zero, 0, sequence_rewards - second)[:, None] * response_mask
