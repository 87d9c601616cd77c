"""VinePPO: the value of a step's first and last state by fresh rollouts instead of a critic."""

import torch

from rlzoo import hookimpl, next_action
from rlzoo.ops import at_run_start, reward_to_go, run_starts


def vineppo(rewards, response_mask, branch_values, branch_steps):
    """A_k = r_k + V^(s_{k+1}) - V^(s_k), the same at every token of step k.

    r_k is the sum of `rewards` inside the step. `branch_steps` (B, T) numbers the steps of a
    response, not decreasing along its actions; `branch_values` (B, T) is V^ at the state in which
    the token's step begins: the mean further score of K rollouts from there (columns of their own,
    which also give the interval of each V^). After the last step V^ is 0: what was reached is in
    the rewards; a truncated response counts as ended. Unbiased at any K, since a step's two ends
    have independent rollouts; variance falls as 1/K, at a cost of K rollouts for each step. Breaks
    when a step is so long that its tokens deserve different credit. Not in verl, TRL or OpenRLHF.
    Source: Kazemnejad et al. 2024, arXiv:2410.01679.
    """
    starts = run_starts(branch_steps, response_mask)
    # Over the states that begin a step, r_k is the difference of the rewards-to-go.
    surplus = reward_to_go(rewards, response_mask) - branch_values
    advantage = surplus - next_action(surplus, starts)
    return torch.where(response_mask.bool(), at_run_start(advantage, starts), 0)


@hookimpl
def register_estimators(register):
    register(vineppo)
