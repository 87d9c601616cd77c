"""A*-PO: regresses the response's log-ratio to the reference on its optimal advantage."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_sum


@component("policy_loss")
def a_star_po(
    log_probs,
    ref_log_probs,
    advantages,
    response_mask,
    *,
    beta: Annotated[float, Range(0, closed="right")] = 1e-3,
):
    """(beta sum_t (log pi - log pi_ref) - A)^2 / L at each action of a response, (B, T).

    A is the response's mean advantage, and L its number of actions; with seq_mean_token_sum, this
    is the paper's loss. It is 0 if pi is the optimum of E R - beta KL(pi, pi_ref), if A = R - V*
    (the estimator `a_star_po`). On the policy's own samples its gradient is 2 beta times
    REINFORCE's with a KL of coefficient beta in the reward; it uses no ratio. As in the authors'
    scripts, the V* in A uses a different beta (0.5) than the loss (1e-3). Adam cancels the factor 2
    beta; max_grad_norm, which is applied earlier, rarely has an effect.
    Source: Brantley et al. 2025, arXiv:2505.20686; their code, ZhaolinGao/A-PO.
    """
    mask = response_mask.bool()
    length = mask.sum(-1).clamp(min=1)
    gap = beta * masked_sum(log_probs - ref_log_probs, mask)
    error = gap - masked_sum(advantages, mask) / length
    return torch.where(mask, (error.square() / length)[:, None], 0)
