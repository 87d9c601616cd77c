"""The step of the response that each token belongs to, as VinePPO splits it."""

from typing import Annotated

import torch

from rlzoo import Range, component


def _example(generator, rows, steps):
    """Steps of one to three tokens."""
    return (torch.rand(rows, steps, generator=generator) < 0.5).double().cumsum(1)


@component("column", shape="BT", example=_example)
def branch_steps(
    response_mask,
    response_tokens,
    *,
    tokens: Annotated[int, Range(1)] = 8,
    separator: str = "",
):
    """The step number of each token, from 0, (B, T) in the mask's dtype.

    With a `separator`, a step ends at each action whose text contains it (VinePPO: the end of a
    line or sentence); a token of several characters is not split. Without one, a step has `tokens`
    actions. Observations inside a response belong to no step and are not counted.
    Source: Kazemnejad et al. 2024, arXiv:2410.01679.
    """
    mask = response_mask.cpu().bool()
    if separator:
        cut = torch.zeros_like(mask)
        ends = [separator in text for texts in response_tokens for text in texts]
        cut[mask] = torch.tensor(ends, dtype=torch.bool)  # texts are of actions
        step = cut.cumsum(1) - cut.long()
    else:
        step = (mask.cumsum(1) - 1).div(tokens, rounding_mode="floor")
    return torch.where(mask, step, 0).to(response_mask)
