"""SPO: a response's reward minus its prompt's mean so far, standardized over the batch."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_degenerate


@component("estimator", couples="batch", caution={"whiten != none": "it already standardizes"})
def spo(
    sequence_rewards,
    response_mask,
    history,
    *,
    eps: Annotated[float, Range(0)] = 1e-8,
):
    """A_i = (d_i - mean d) / (std d + eps) at every token, with d = R - v.

    R is `sequence_rewards` (B,), and v is `history` (B,), the mean reward of the prompt in earlier
    steps. One response per prompt is enough, and a batch of equal rewards still has a signal unless
    all v are equal. Mean and std (over B - 1) are over the batch's responses, not over its tokens.
    With a constant v this is `grpo` with the whole batch as one group. A single row, or equal d (up
    to rounding), gives exact zeros. It fails when prompts do not recur, because hard and easy
    prompts then share one baseline.
    Source: Xu and Ding 2025, arXiv:2509.13232; their code, verl-recipe, spo_ray_trainer.py.
    """
    d = sequence_rewards - history
    centered = d - d.mean()
    scaled = centered / ((centered.square().sum() / max(len(d) - 1, 1)).sqrt() + eps)
    flat = group_degenerate(d, torch.zeros(len(d), dtype=torch.long, device=d.device))
    return torch.where(flat, 0, scaled)[:, None] * response_mask
