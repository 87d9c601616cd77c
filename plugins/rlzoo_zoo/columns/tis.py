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
    """min(pi_old / mu, cap) at each action, (B, T), where mu is the sampling distribution; 1 if
    they agree.

    A correction multiplies any policy loss. level=token uses each token's ratio: it has low
    variance but is biased, because the states still come from mu. level=sequence uses the product
    over the response at all of its tokens: it is unbiased below the cap, but useless for long
    responses. Every finite cap trades bias for variance. It cannot recover tokens that top-k or
    top-p exclude, where mu = 0.
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
