"""GDPO: standardizes each reward separately within the group, then takes the weighted sum."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_degenerate, group_mean, group_std


@component("estimator")
def gdpo(
    score_components,
    score_weights,
    response_mask,
    group_ids,
    *,
    eps: Annotated[float, Range(0)] = 1e-6,
):
    """A_i = sum_k w_k (R^k_i - mean_g R^k) / (std_g R^k + eps) at every token, std over G - 1.

    R^k are `score_components` (B, K) before weights; w are `score_weights` (K,). If rewards are
    summed first, as in GRPO, one with a large spread hides the others, and different mixtures get
    the same advantage. A group of one gives zeros, and a component that is equal within a group
    adds exactly 0 there. The paper whitens the result over the batch; here the recipe does so (verl
    does it in the estimator). A KL penalty in the reward has no effect, since components exclude
    KL. With one component of weight 1, it is `grpo`. It fails when a component is mostly noise,
    because noise is scaled up like the rest.
    Source: Liu et al. 2026, arXiv:2601.05242.
    """
    centered = score_components - group_mean(score_components, group_ids)
    scaled = centered / (group_std(score_components, group_ids) + eps)
    scaled = torch.where(group_degenerate(score_components, group_ids), 0, scaled)
    advantage = (scaled * score_weights.to(scaled.dtype)).sum(1)  # (B, K) -> (B,)
    return advantage[:, None] * response_mask
