"""GDPO: each reward standardised within the group by itself, then the weighted sum."""

from typing import Annotated

import torch

from rlzoo import Range, group_degenerate, group_mean, group_std, hookimpl


def gdpo(
    score_components,
    score_weights,
    response_mask,
    group_ids,
    *,
    eps: Annotated[float, Range(0)] = 1e-6,
):
    """A_i = sum_k w_k (R^k_i - mean_g R^k) / (std_g R^k + eps) at every token, std over G - 1.

    `score_components` (B, K), before weights; `score_weights` (K,). Summed first, as in GRPO,
    rewards of different spread drown each other and different mixtures fall onto one advantage. A
    group of one gives zeros, and a component that is equal within a group adds exactly 0 there.
    The paper whitens the result over the batch: here that is the recipe's (verl does it inside).
    A KL penalty placed in the reward is not seen, since components come before KL. With one
    component of weight 1 it is `grpo`. Breaks when a component is mostly noise: it is scaled up
    like the rest.
    Source: Liu et al. 2026, arXiv:2601.05242.
    """
    centered = score_components - group_mean(score_components, group_ids)
    scaled = centered / (group_std(score_components, group_ids) + eps)
    scaled = torch.where(group_degenerate(score_components, group_ids), 0, scaled)
    advantage = (scaled * score_weights.to(scaled.dtype)).sum(1)  # (B, K) -> (B,)
    return advantage[:, None] * response_mask


@hookimpl
def register_estimators(register):
    register(gdpo)
