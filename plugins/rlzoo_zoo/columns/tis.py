"""TIS: truncated importance weights from the sampler to the trainer's policy."""

import math
from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.columns.ratios import Level, log_ratio, of_mean_1


@component("column", shape="BT", couples="batch")
def tis(
    sampler_log_probs,
    old_log_probs,
    response_mask,
    *,
    cap: Annotated[float, Range(0, closed="right")] = 2.0,
    floor: Annotated[float, Range(0)] = 0.0,
    level: Level = "token",
    reject: Annotated[float, Range(0)] = 0.0,
    normalize: bool = False,
):
    """max(floor, min(pi_old / mu, cap)) at each action, (B, T), where mu is the sampling
    distribution; 1 if they agree.

    A rollout correction, for training-inference mismatch and stale samples: it multiplies any
    policy loss. level=token uses each token's ratio: it has low
    variance but is biased, because the states still come from mu. level=sequence uses the product
    over the response at all of its tokens, level=prefix the product up to the token: they are
    unbiased below the cap, but useless for long responses. level=geometric uses the mean of the
    log ratios. reject=x also gives 0 to responses whose mean log ratio is beyond +-x, in nats; 0
    rejects none. normalize=true divides by the batch's mean weight. Every finite cap trades bias
    for variance. It cannot recover tokens that top-k or top-p exclude, where mu = 0.
    In verl: `rollout_is` is `level`, its threshold `cap`, `rollout_is_batch_normalize` normalize,
    and the geometric rejection (Geo-RS) reject. TRL's token_truncate and sequence_truncate are the
    first two levels. `icepop` masks where this truncates, `rejection` masks by other distances.
    Elsewhere: rollout_is (verl), truncated importance sampling, token_truncate, sequence_truncate
    (TRL), CTPO.
    Source: Ionides 2008, JCGS 17; Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training".
    """
    ratio = log_ratio(old_log_probs, sampler_log_probs, response_mask, level)
    weights = ratio.clamp(max=math.log(cap)).exp().clamp(min=min(floor, cap))
    if reject:
        mean = log_ratio(old_log_probs, sampler_log_probs, response_mask, "geometric")
        weights = torch.where(mean.abs() <= reject, weights, 0)
    weights = torch.where(response_mask.bool(), weights, 0)
    return of_mean_1(weights, response_mask) if normalize else weights
