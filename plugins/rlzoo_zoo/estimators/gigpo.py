"""GiGPO: the group advantage of the episode, plus that of each turn among equal states."""

from typing import Annotated

import torch

from rlzoo import Discount, Range, component, group_degenerate, group_mean, linear_scan
from rlzoo.ops import at_run_start, group_index, run_starts
from rlzoo_zoo.estimators.dr_grpo import dr_grpo


@component("estimator")
def gigpo(
    rewards,
    response_mask,
    group_ids,
    sequence_rewards,
    turn_ids,
    state_keys,
    *,
    gamma: Discount = 0.95,
    step_weight: Annotated[float, Range(0)] = 1.0,
):
    """A = (R_i - mean_g R) + step_weight (G_k - mean of G over turns that start in the same state).

    R is `sequence_rewards` (B,). A turn k is a sequence of actions with one `turn_ids` (B, T). Its
    reward is the sum over its tokens, and G_k discounts by gamma per *turn*. It is compared with
    all turns, in any row of the group and at any time, whose first action has the same `state_keys`
    (B, T). All tokens of a turn share the result. A state that occurs once adds 0; in a group of
    one or of equal rewards, the episode's part is 0. There is no division by std (the authors'
    `mean_norm`). mean_g is over rows, as in the paper; verl-agent's default
    (compute_mean_std_cross_steps) is over turns, so that long rows have more weight. It fails when
    no state recurs (then it is dr_grpo), or when the key leaves out what matters.
    Source: Feng et al. 2025, arXiv:2505.10978.
    """
    mask = response_mask.bool()
    starts = run_starts(turn_ids, mask)
    row, first = starts.nonzero(as_tuple=True)  # (N,), N turns in all
    ends = run_starts(turn_ids.flip(1), mask.flip(1)).flip(1)
    # Discounting where a turn ends only, the return at a turn's first action is that of the turn.
    factor = torch.where(ends, torch.full_like(rewards, gamma), 1)
    returns = linear_scan(torch.where(mask, rewards, 0), factor)
    anchors = group_index(group_ids[row], state_keys[row, first])
    step = torch.zeros_like(rewards)
    turn_return = returns[row, first]
    relative = turn_return - group_mean(turn_return, anchors)
    step[row, first] = torch.where(group_degenerate(turn_return, anchors), 0, relative)
    step = at_run_start(step, starts)
    episode = dr_grpo(sequence_rewards, response_mask, group_ids)
    return (episode + step_weight * step) * response_mask
