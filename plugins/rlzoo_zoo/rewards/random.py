"""Random: a coin for each response, the control arm for every other reward."""

from typing import Annotated

import torch

from rlzoo import Range, hookimpl


def random(
    noise,
    response_mask,
    *,
    p: Annotated[float, Range(0, 1), "probability of a 1"] = 0.5,
):
    """1 with probability p, else 0, for each response, whatever its text, (B,).

    The coin is `noise` (B, T) at the response's first action, so it is a function of seed, step and
    row. A run that gains as much with it as with the real reward has not learned from the reward:
    format, truncation or the clip did it. Its expected policy gradient is 0 under any baseline that
    does not read the response's own reward. Breaks as a control with `overlong` or a KL penalty in
    the reward: those still pay.
    Source: Shao et al. 2025, arXiv:2506.10947; as a control arm Gao 2026, arXiv:2606.05932.
    """
    mask = response_mask.bool()
    first = mask & (mask.cumsum(1) == 1)
    coin = torch.where(first, noise, 0).sum(1)
    return ((coin < p) & mask.any(1)).to(noise.dtype)


@hookimpl
def register_rewards(register):
    register(random)
