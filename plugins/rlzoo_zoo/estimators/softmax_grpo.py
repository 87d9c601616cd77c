"""SoftmaxGRPO: the group's rewards as a softmax with a temperature."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_count, group_degenerate, group_sum
from rlzoo.ops import group_max


@component("estimator")
def softmax_grpo(
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    tau: Annotated[float, Range(0, closed="neither"), "temperature in units of the reward"] = 0.3,
):
    """A_i = G softmax_g(R / tau)_i - 1 at every token, where G is the group's size.

    R is `sequence_rewards` (B,). The advantages of a group sum to 0 and are in [-1, G - 1]. With
    0/1 rewards of mean p, the limit tau -> 0 is (R - p) / p, which is `maxrl`; for large tau, it is
    (R - mean) / tau, which is `dr_grpo` with a different learning rate. A group of one, or of equal
    rewards (up to rounding), gives exact zeros. It fails when rewards differ by much more than tau,
    because then only the best response of a group counts.
    Source: Hernandez et al. 2026, arXiv:2608.09271; the formula comes from the authors' code
    (jeffhernandez1995/softmaxgrpo, advantage.py), whose temperatures are 0.1 to 0.3.
    """
    best = group_max(sequence_rewards, group_ids)
    mass = ((sequence_rewards - best) / tau).exp()
    share = group_count(group_ids) * mass / group_sum(mass, group_ids)
    flat = group_degenerate(sequence_rewards, group_ids)
    return torch.where(flat, 0, share - 1)[:, None] * response_mask
