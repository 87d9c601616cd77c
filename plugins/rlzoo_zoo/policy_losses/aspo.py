"""ASPO: weights good tokens by the inverse of their ratio, so that unlikely ones catch up."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def aspo(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
    c: Annotated[float, Range(1, closed="neither")] = 3.0,
):
    """-A sg(min(1 / rho, c)) log pi where A > 0, -A sg(min(rho, c)) log pi where A < 0, per token
    (B, T); 0 where rho > 1 + clip_high and A > 0, or rho < 1 - clip_low and A < 0.

    PPO weights a token by rho, so tokens that have become likely have the largest gradient. With
    one advantage for a whole response, these need it least, so the ratio is inverted for good
    tokens. c is the soft dual clip: beyond it, the weight is constant and the gradient remains. The
    same tokens are clipped as in PPO. The authors' scripts use a bound of 0.4 instead of 0.2 for
    the fifth of the tokens with the highest entropy, which is not implemented here, and add k3 to
    the loss with coefficient 0.001. This is based on the authors' code (wizard-III/Archer2.0,
    `compute_policy_loss_archer`) and on formulas in summaries.
    Source: Wang et al. 2025, arXiv:2510.06062.
    """
    log_ratio = (log_probs - old_log_probs).detach().clamp(-20, 20)
    ratio = log_ratio.exp()
    weight = torch.where(advantages > 0, -log_ratio, log_ratio).exp().clamp(max=c)
    high = (advantages > 0) & (ratio > 1 + clip_high)
    low = (advantages < 0) & (ratio < 1 - clip_low)
    weight = torch.where(high | low, 0, weight)
    metrics = clip_fractions(high, low, weight.dtype) | {"pg_weight": weight}
    return -weight * advantages * log_probs, metrics
