"""Blend (V0.5): a baseline between the critic's value of the prompt and the group's mean."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_count, group_mean, group_sum


def check(*, low, high):
    if low >= high:
        raise ValueError(f"low must be below high. Got {low} and {high}")


@component("estimator", check=check)
def blend(
    values,
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    low: Annotated[float, Range(), "the lowest reward of a response"] = 0.0,
    high: Annotated[float, Range(), "the highest reward of a response"] = 1.0,
):
    """A_i = R_i - b at every token, with b = w m + (1 - w) V and w = D / (D + s).

    R is `sequence_rewards` (B,), m is its mean over the group's G rows, and V is the critic's value
    of the prompt (`values` at the first action, averaged over the group's rows with an action). s =
    ((high - low) / 2)^2 / G bounds the variance of m; D = max(0, (m - V)^2 - s) estimates the
    critic's squared error. So w minimizes the mean squared error w^2 s + (1 - w)^2 D of b, and
    max(0, ...) is a test: the group's mean is used only if it differs from V by more than sampling
    explains. The critic's target is R at every token, which is the return if the reward comes at
    the end. In a group of one, b = V, because a single reward cannot test V. A response's own
    reward is part of m, which causes the same bias as in `dr_grpo`. It fails with an untrained
    critic in small groups: an error below sqrt(s) goes unnoticed and adds variance.
    Source: Zhang et al. 2026, arXiv:2603.10848 (V0.5), whose rewards are -1 and 1, so that s = 1/G.
    The formulas come from a published summary. The authors use a frozen model for any policy as V
    and draw further responses if the test fails; here V is the run's critic, and no further
    responses are drawn.
    """
    mask = response_mask.bool()
    first = mask & (mask.cumsum(1) == 1)
    seen = group_sum(first.sum(1).to(values.dtype), group_ids)  # a row without an action has no V
    prompt = group_sum(torch.where(first, values, 0).sum(1), group_ids) / seen.clamp(min=1)  # (B,)
    mean = group_mean(sequence_rewards, group_ids)
    noise = ((high - low) / 2) ** 2 / group_count(group_ids).to(mean.dtype)
    error = ((mean - prompt).square() - noise).clamp(min=0)
    total = error + noise
    weight = torch.where(total > 0, error / torch.where(total > 0, total, 1), 1)
    weight = torch.where(group_count(group_ids) > 1, weight, 0)
    baseline = weight * mean + (1 - weight) * prompt
    returns = sequence_rewards[:, None] * response_mask
    return returns - baseline[:, None] * response_mask, returns
