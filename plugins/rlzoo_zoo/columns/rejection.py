"""Rejection: ignores tokens on which sampler and trainer disagree too much."""

from typing import Annotated, Literal

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_sum


@component("column", shape="BT")
def rejection(
    sampler_log_probs,
    old_log_probs,
    response_mask,
    *,
    threshold: Annotated[float, Range(0)] = 0.01,
    estimator: Literal["k1", "k2", "k3"] = "k3",
    level: Literal["token", "sequence", "sum", "max"] = "sequence",
):
    """1 at actions whose discrepancy is at most `threshold` (nats), otherwise 0, (B, T).

    With l = log pi_old - log mu, the discrepancy is k1 = abs(l), k2 = l^2 / 2, or k3 = exp(l) - 1 -
    l, an estimate of KL(mu || pi_old). level=token tests each token; level=sequence tests the mean
    over a response's actions and keeps or rejects the whole response; level=sum and level=max test
    the sum and the largest instead. In the mean and the sum, k1 is signed, so that opposite errors
    cancel: the mean bounds the geometric mean of the ratios (Geo-RS). In verl: `rollout_rs` of
    token_k1 to seq_max_k3 (seq_mean is level=sequence). This correction reweighs nothing, so
    the remaining tokens are biased towards agreement. Rejected tokens still count in the loss's
    denominators (verl removes them from the mask).
    Elsewhere: rollout_rs, Geo-RS, seq_max_k3 (verl), rejection sampling.
    Source: Liu et al. 2025, "When speed kills stability: demystifying RL collapse from the
    training-inference mismatch".
    """
    gap = old_log_probs - sampler_log_probs
    distance = {
        "k1": lambda: gap,
        "k2": lambda: 0.5 * gap.square(),
        "k3": lambda: gap.expm1() - gap,  # infinity is rejected, too
    }[estimator]()
    if level == "max":
        distance = torch.where(response_mask.bool(), distance.abs(), 0).amax(-1, keepdim=True)
    elif level != "token":
        length = response_mask.bool().sum(-1).clamp(min=1) if level == "sequence" else 1
        distance = (masked_sum(distance, response_mask) / length)[:, None]
    kept = (distance.abs() <= threshold) & response_mask.bool()
    return kept.to(gap.dtype)
