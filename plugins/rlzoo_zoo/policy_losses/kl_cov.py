"""KL-Cov: penalizes the tokens that reduce the entropy most."""

from typing import Annotated

import torch

from rlzoo import Range, component, masked_mean
from rlzoo.ops import absolute


@component("policy_loss", couples="batch")
def kl_cov(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    fraction: Annotated[float, Range(0, 1, closed="right")] = 2e-4,
    coef: Annotated[float, Range(0)] = 1.0,
):
    """-rho A per token (B, T), plus coef abs(log rho) on the tokens of greatest covariance.

    cov = (A - mean A)(log pi - mean log pi) as in `clip_cov`; the max(1, floor(fraction N)) largest
    of the mini-batch's N actions are penalized. This version penalizes only tokens with cov > 0,
    since others do not lower the entropy, and includes ties, so that the order of rows does not
    matter. It couples the mini-batch. On the first step of a batch, rho is 1 and the penalty has no
    gradient, so it needs several steps per batch. Its gradient, the sign of log rho, fades to 0
    within abs(log rho) < 1e-3, because at rho = 1 the sign is rounding noise, which verl follows.
    The paper uses 2e-3 for a 7B model and 2e-4 for 32B.
    Source: Cui et al. 2025, arXiv:2505.22617.
    """
    mask = response_mask.bool()
    log_ratio = (log_probs - old_log_probs).clamp(max=20)
    log_pi = log_probs.detach()
    cov = (advantages - masked_mean(advantages, mask)) * (log_pi - masked_mean(log_pi, mask))
    cov = torch.where(mask, cov, 0)
    count = max(1, int(fraction * response_mask.bool().sum()))
    least = cov.flatten().sort(descending=True).values[count - 1]
    held = ((cov > 0) & (cov >= least)).to(log_probs.dtype)
    loss = held * coef * absolute(log_ratio) - log_ratio.exp() * advantages
    return loss, {"pg_clipfrac_cov": held}
