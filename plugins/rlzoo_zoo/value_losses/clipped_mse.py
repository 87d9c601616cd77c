"""PPO's squared error with a trust interval around the old value."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("value_loss")
def clipped_mse(
    value_preds,
    values,
    returns,
    *,
    clip: Annotated[float, Range(0, closed="neither")] = 0.2,
):
    """1/2 max((V - G)^2, (V_old + clamp(V - V_old, +-clip) - G)^2) per token (B, T).

    A prediction that moved more than `clip` towards its target gets no further gradient in this
    step. clip is in units of the reward, so it slows the critic down if returns are large.
    Source: Schulman et al. 2017, baselines' ppo2; Engstrom et al. 2020, arXiv:2005.12729.
    """
    moved = value_preds - values
    clipped = values + moved.clamp(-clip, clip)
    free, bound = (value_preds - returns).square(), (clipped - returns).square()
    # Within the interval the two differ by rounding, which does not count as clipping.
    hit = (bound > free) & (moved.abs() > clip)
    return 0.5 * torch.maximum(free, bound), {"vf_clipfrac": hit.to(free.dtype)}
