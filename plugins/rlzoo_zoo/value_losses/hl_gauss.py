"""HL-Gauss: the critic is a classifier over bins with a Gaussian around the return as target."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("value_loss")
def hl_gauss(
    value_logits,
    value_support,
    returns,
    *,
    sigma: Annotated[float, Range(0, closed="right")] = 0.75,
):
    """Cross-entropy -sum_k q_k log softmax(z)_k per token (B, T), z = `value_logits` (B, T, K).

    q_k is the mass of a Gaussian around G in bin k, renormalised; the bins' centres are
    `value_support` (K,), evenly spaced, and the Gaussian's std is `sigma` bin widths. The mean of
    q is G, to under 1 % of a bin width in the interior; within 3 sigma of an end it is pulled
    inwards, at the very end by 0.37 bin widths (default sigma). G outside the support is clipped to
    it (`returns_clipped`), which biases the critic: let critic.low and critic.high leave room.
    Source: Imani and White 2018, arXiv:1806.04613; Farebrother et al. 2024, arXiv:2403.03950,
    whose code clips nothing.
    """
    low, high = value_support.min(), value_support.max()
    width = (high - low) / (value_support.numel() - 1)
    centre = returns.clamp(low, high)[..., None]  # (B, T, 1)
    edges = torch.cat([value_support - width / 2, (high + width / 2)[None]])  # (K + 1,)
    mass = torch.special.ndtr((edges - centre) / (sigma * width)).diff(dim=-1)  # (B, T, K)
    target = mass / mass.sum(-1, keepdim=True)
    outside = (returns < low) | (returns > high)
    loss = -(target * value_logits.log_softmax(-1)).sum(-1)
    return loss, {"returns_clipped": outside.to(loss.dtype)}
