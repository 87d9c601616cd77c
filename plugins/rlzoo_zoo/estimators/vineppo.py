"""VinePPO: values of a step's first and last state from new rollouts instead of a critic."""

import torch

from rlzoo import component, next_action
from rlzoo.ops import at_run_start, reward_to_go, run_starts


@component("estimator")
def vineppo(rewards, response_mask, branch_values, branch_steps):
    """A_k = r_k + V^(s_{k+1}) - V^(s_k), the same at every token of step k.

    r_k is the sum of `rewards` inside the step. `branch_steps` (B, T) numbers the steps of a
    response in order; `branch_values` (B, T) is V^ at the first state of the token's step: the mean
    future score of K rollouts from there. Both are separate columns, and a third one has the
    interval of each V^. After the last step V^ is 0, because the rewards already contain the
    outcome; a truncated response counts as ended. It is unbiased at any K, since a step's two ends
    have independent rollouts; the variance falls as 1/K, at a cost of K rollouts per step. It fails
    when a step is so long that its tokens deserve different credit. verl, TRL and OpenRLHF do not
    have it.
    Source: Kazemnejad et al. 2024, arXiv:2410.01679.
    """
    starts = run_starts(branch_steps, response_mask)
    # Over the states that begin a step, r_k is the difference of the rewards-to-go.
    surplus = reward_to_go(rewards, response_mask) - branch_values
    advantage = surplus - next_action(surplus, starts)
    return torch.where(response_mask.bool(), at_run_start(advantage, starts), 0)
