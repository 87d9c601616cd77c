"""DRO: a quadratic pull towards the old policy, for data of any age."""

from typing import Annotated, Literal

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_sum


@component("policy_loss")
def dro(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    beta: Annotated[float, Range(0)] = 0.05,
    level: Literal["token", "sequence"] = "token",
):
    """-A log pi + beta/2 d per token (B, T), where d is the square of the log-ratio.

    level=token: d = (log rho_t)^2, as in verl and Tinker. level=sequence: d = (sum_t log
    rho_t)^2 / L, so that a response's tokens sum to the square of the paper (and of Kimi k1.5,
    arXiv:2501.12599); use a token-sum aggregation. It is stationary at log rho = A / beta, so A
    must be the difference that the policy *should* have, R - V of the regularized problem. The
    paper pulls towards a reference model; here, as in the libraries, it pulls towards the policy
    that sampled.
    Source: Richemond et al. 2024, arXiv:2405.19107.
    """
    mask = response_mask.bool()
    log_ratio = log_probs - old_log_probs
    square = log_ratio.square()
    if level == "sequence":
        length = mask.sum(-1).clamp(min=1)
        square = (masked_sum(log_ratio, mask).square() / length)[:, None]
    return torch.where(mask, 0.5 * beta * square, 0) - advantages * log_probs
