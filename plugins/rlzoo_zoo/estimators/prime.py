"""PRIME: dense rewards from an implicit reward model plus the outcome, both with leave-one-out."""

import torch

from rlzoo import Discount, component, group_count, group_degenerate
from rlzoo.ops import leave_one_out_mean, masked_sum, reward_to_go


@component("estimator")
def prime(
    implicit_rewards,
    sequence_scores,
    response_mask,
    group_ids,
    *,
    gamma: Discount = 1.0,
):
    """A_t = sum_{s>=t} gamma^(s-t) (r_s - LOO mean of r) + R_i - mean_{j != i} R_j.

    r = `implicit_rewards` (B, T) = beta log(pi_phi / pi_ref) per token is a separate column; its
    leave-one-out mean is over the other rows' means per token; R is `sequence_scores` (B,). This
    follows the paper; the authors' code and verl use r_s G / (G - 1) minus the sum of all G rows'
    means divided by G - 1, and whiten the result. The reward model is *frozen* here; the paper also
    trains it online on each batch's outcomes, which prevents reward hacking. A group of one gives
    zeros; equal outcomes add exactly 0, so only the implicit rewards remain. It fails once the
    policy has moved so far that the frozen model's log-ratios no longer indicate progress.
    Source: Cui et al. 2025, arXiv:2502.01456.
    """
    actions = response_mask.sum(1).to(implicit_rewards.dtype)
    mean = masked_sum(implicit_rewards, response_mask) / actions.clamp(min=1)
    baseline = leave_one_out_mean(mean, group_ids, (actions > 0).to(mean.dtype))
    process = reward_to_go(implicit_rewards - baseline[:, None], response_mask, gamma=gamma)
    outcome = sequence_scores - leave_one_out_mean(sequence_scores, group_ids)
    outcome = torch.where(group_degenerate(sequence_scores, group_ids), 0, outcome)
    alone = group_count(group_ids)[:, None] == 1
    return torch.where(alone, 0, process + outcome[:, None]) * response_mask
