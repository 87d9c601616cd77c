"""Dr. GRPO: a response's reward minus its group's mean, and nothing else."""

import torch

from rlzoo import component, group_degenerate, group_mean


@component("estimator")
def dr_grpo(sequence_rewards, response_mask, group_ids):
    """A_i = R_i - mean_g R at every token.

    R is `sequence_rewards` (B,). It is GRPO without its two biases: there is no division by the
    group's std (which weights prompts by difficulty), and in the recipe, a constant length replaces
    the response length as the loss's denominator. The mean includes the sample itself, so the
    expected gradient is (G-1)/G times the true one, a constant that the learning rate can absorb;
    `rloo` is G/(G-1) times this. A group of one, or of equal rewards, gives exact zeros. It fails
    with aggregations that divide by each response's own length, which restore the length bias.
    Elsewhere: scale_rewards (TRL), norm_adv_by_std_in_grpo (verl).
    Source: Liu et al. 2025, arXiv:2503.20783.
    """
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    flat = group_degenerate(sequence_rewards, group_ids)
    return torch.where(flat, 0, centered)[:, None] * response_mask
