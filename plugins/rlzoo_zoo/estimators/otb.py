"""OTB: the optimal baseline for each token position, weighted by the accumulated gradient."""

import torch

from rlzoo import component, group_count, group_degenerate, group_sum
from rlzoo.ops import collapse, expand, group_max, reward_to_go


@component("estimator")
def otb(
    rewards,
    response_mask,
    group_ids,
    old_log_probs,
    sum_pi_squared,
    *,
    handle_zero_tail: bool = True,
):
    """A_t = G_t - B_t, B_t = sum_i W_it G_it / sum_i W_it over the group's rows that have not
    ended.

    G is the undiscounted reward-to-go, W_t = sum_{s<=t} (1 - 2 pi_s + sum_v pi_v^2): the squared
    norm of the gradient of log pi in the logits, summed up to t. pi_s = exp(old_log_probs); all (B,
    T). Rows are compared at their t-th *action* (verl's `optimal_token_baseline` compares columns,
    its `tir_` form actions). If only the longest row is left, it would be its own baseline, A = 0;
    handle_zero_tail uses a baseline of 0 there instead. Equal rewards-to-go throughout the group,
    and a group of one (verl: the raw return), give exact zeros. It fails when the logits' gradient
    does not represent the parameters' gradient. The baseline includes its own sample, a bias that
    falls as 1/G.
    Elsewhere: optimal_token_baseline, tir_optimal_token_baseline (verl).
    Source: Li et al. 2026, arXiv:2602.07078.
    """
    mask = response_mask.bool()
    returns = reward_to_go(rewards, response_mask)
    energy = (1 - 2 * old_log_probs.exp() + sum_pi_squared).clamp(min=0)
    weight = torch.where(mask, energy, 0).cumsum(1)
    to_go, weight, alive = (collapse(x, mask) for x in (returns, weight, mask.to(returns.dtype)))
    total = group_sum(weight, group_ids)  # (B, T), t now counts actions
    baseline = group_sum(weight * to_go, group_ids) / torch.where(total > 0, total, 1)
    if handle_zero_tail:
        baseline = torch.where(group_sum(alive, group_ids) > 1, baseline, 0)
    advantages = expand(to_go - baseline, mask)
    flat = _equal_throughout(returns, mask, group_ids) | (group_count(group_ids) == 1)
    return torch.where(flat[:, None], 0, advantages)


def _equal_throughout(returns, mask, group_ids):
    """True (B,) where a group's entries on the mask are all equal up to rounding."""
    high = group_max(torch.where(mask, returns, -torch.inf).amax(1), group_ids)
    filled = torch.where(mask, returns, high[:, None])
    steps = filled.shape[1]
    return group_degenerate(filled.flatten(), group_ids.repeat_interleave(steps)).view(-1, steps)[
        :, 0
    ]
