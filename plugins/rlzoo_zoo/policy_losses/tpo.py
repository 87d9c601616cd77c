"""TPO: fits the policy over a prompt's samples to a target with a closed form."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_sum
from rlzoo.ops import group_max, masked_sum


@component("policy_loss", couples="batch")
def tpo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    group_ids,
    *,
    eta: Annotated[float, Range(0, closed="right")] = 1.0,
    length_normalize: bool = False,
):
    """sg(G (p_i - q_i)) log pi at each action of response i, (B, T), G the group's size.

    p = softmax over the group of log pi(y_i), q = that of log pi_old(y_i) + u_i / eta, u_i the
    response's mean advantage: with seq_mean_token_sum this has the gradient of the groups' mean
    cross-entropy -G sum_i q_i log p_i, which vanishes at p = q, unlike a policy gradient. It needs
    u standardized in the group (estimator grpo; in the paper, with the population std) and whole
    groups in a mini-batch. length_normalize uses mean log-probabilities in p and q, TRL's default,
    because with sums the most likely response dominates; then aggregate with seq_mean_token_mean.
    Responses without an action belong to no group. `tpo_cross_entropy` is -q_i log p_i.
    Source: Kaddour 2026, arXiv:2604.06159.
    """
    mask = response_mask.bool()
    acts, length = mask.any(-1), mask.sum(-1).clamp(min=1)
    scale = length if length_normalize else 1
    score = masked_sum(log_probs.detach(), mask) / scale
    goal = masked_sum(old_log_probs, mask) / scale + masked_sum(advantages, mask) / length / eta
    log_p, log_q = (_group_log_softmax(x, group_ids, acts) for x in (score, goal))
    size = group_sum(acts.to(log_p.dtype), group_ids)
    push = torch.where(acts, size * (log_p.exp() - log_q.exp()), 0)[:, None]
    cross_entropy = (-log_q.exp() * log_p)[:, None].expand_as(log_probs)
    return push * torch.where(mask, log_probs, 0), {"tpo_cross_entropy": cross_entropy}


def _group_log_softmax(x, group_ids, counts):
    """log softmax of x (B,) within its group, over the rows that count (B,) bool; others get 0."""
    top = group_max(torch.where(counts, x, -torch.inf), group_ids)
    shifted = torch.where(counts, x - top, 0)
    total = group_sum(torch.where(counts, shifted.exp(), 0), group_ids)
    return torch.where(counts, shifted - total.log(), 0)
