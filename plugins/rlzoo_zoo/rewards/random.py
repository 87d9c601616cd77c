"""Random: a coin flip for each response, a control for every other reward."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("reward")
def random(
    noise,
    response_mask,
    *,
    p: Annotated[float, Range(0, 1), "probability of 1"] = 0.5,
):
    """1 with probability p, otherwise 0, for each response, regardless of its text, (B,).

    The coin uses `noise` (B, T) at the response's first action, so it is a function of seed, step
    and row. A run that improves as much with it as with the real reward has not learned from the
    reward, but from format, truncation or clipping. Its expected policy gradient is 0 with any
    baseline that does not use the response's own reward. It fails as a control with `overlong` or a
    KL penalty in the reward, because these still depend on the response.
    Source: Shao et al. 2025, arXiv:2506.10947; as a control, Gao 2026, arXiv:2606.05932.
    """
    mask = response_mask.bool()
    first = mask & (mask.cumsum(1) == 1)
    coin = torch.where(first, noise, 0).sum(1)
    return ((coin < p) & mask.any(1)).to(noise.dtype)
