"""TIS: truncated importance weights from the sampler to the trainer's policy."""

import math
from typing import Annotated, Literal

import torch

from rlzoo import Range, hookimpl
from rlzoo.ops import masked_sum


def tis(
    sampler_log_probs,
    old_log_probs,
    response_mask,
    *,
    cap: Annotated[float, Range(0, closed="right")] = 2.0,
    level: Literal["token", "sequence"] = "token",
):
    """min(pi_old / mu, cap) at each action, (B, T), mu what was sampled from; 1 where they agree.

    A correction multiplies the policy loss, whichever it is. level=token uses each token's ratio:
    low variance, but biased, as the states are still mu's. level=sequence uses the response's
    product at all of its tokens: unbiased below the cap, and useless for long responses. Every
    finite cap trades bias for variance. It cannot bring back tokens that top-k or top-p never let
    through, where mu = 0.
    Source: Ionides 2008, JCGS 17; Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training".
    """
    log_ratio = old_log_probs - sampler_log_probs
    if level == "sequence":
        log_ratio = masked_sum(log_ratio, response_mask)[:, None].expand_as(log_ratio)
    return torch.where(response_mask.bool(), log_ratio.clamp(max=math.log(cap)).exp(), 0)


@hookimpl
def register_columns(register):
    register(tis, shape="BT")
