"""GRPO: a response's reward, standardized within the samples of its prompt."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_degenerate, group_mean, group_std


@component("estimator")
def grpo(
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    eps: Annotated[float, Range(0)] = 1e-6,
):
    """A_i = (R_i - mean_g R) / (std_g R + eps) at every token, std over G - 1.

    R is `sequence_rewards` (B,). A group of one, or of equal rewards (up to rounding), gives exact
    zeros. Dividing by the std weights a prompt by 1/sqrt(p(1 - p)), so prompts that are nearly
    always or nearly never solved count most. eps is 1e-6 in verl and 1e-4 in TRL.
    Source: Shao et al. 2024, arXiv:2402.03300.
    """
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    scaled = centered / (group_std(sequence_rewards, group_ids) + eps)
    flat = group_degenerate(sequence_rewards, group_ids)
    return torch.where(flat, 0, scaled)[:, None] * response_mask
