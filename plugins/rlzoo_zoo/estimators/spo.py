"""SPO: a response's reward minus its prompt's history, standardised over the batch."""

from typing import Annotated

import torch

from rlzoo import Range, group_degenerate, hookimpl


def spo(
    sequence_rewards,
    response_mask,
    history,
    *,
    eps: Annotated[float, Range(0)] = 1e-8,
):
    """A_i = (d_i - mean d) / (std d + eps) at every token, d = R - v.

    R is `sequence_rewards` (B,), v `history` (B,), the mean reward of the prompt in earlier steps:
    one response a prompt is enough, and no batch of equal rewards is lost unless all prompts agree.
    Mean and std (over B - 1) are those of the batch's responses, not of its tokens. With a constant
    v this is `grpo` with the whole batch as one group. A single row, or equal d (up to rounding),
    gives exact zeros. Breaks where prompts do not return: without a history hard and easy prompts
    share one baseline.
    Source: Xu and Ding 2025, arXiv:2509.13232; their code, verl-recipe, spo_ray_trainer.py.
    """
    d = sequence_rewards - history
    centered = d - d.mean()
    scaled = centered / ((centered.square().sum() / max(len(d) - 1, 1)).sqrt() + eps)
    flat = group_degenerate(d, torch.zeros(len(d), dtype=torch.long, device=d.device))
    return torch.where(flat, 0, scaled)[:, None] * response_mask


@hookimpl
def register_estimators(register):
    register(spo, couples="batch", caution={"whiten != none": "it standardises by itself"})
