"""IcePop: keeps the tokens on which sampler and trainer nearly agree, and drops the others."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.columns.ratios import Level, log_ratio


@component("column", shape="BT")
def icepop(
    sampler_log_probs,
    old_log_probs,
    response_mask,
    *,
    low: Annotated[float, Range(0, 1)] = 0.5,
    high: Annotated[float, Range(1)] = 5.0,
    level: Level = "token",
):
    """rho = pi_old / mu if low <= rho <= high, otherwise 0, at each action, (B, T).

    Unlike the correction `tis`, it also drops tokens that are far less likely under the trainer
    than under the sampler, because there the mismatch is noise. The levels are those of `tis`;
    level=sequence is verl's and TRL's sequence mask (MIS), and verl's
    `rollout_is_threshold=low_high` the bounds. It fails under hard truncation (small top-k, top-p):
    rho is then the kept mass, which is below 1 by design, and `low` drops states where it is small.
    Elsewhere: lower_upper (verl), token_mask, sequence_mask (TRL), use_mis, masked importance
    sampling.
    Source: Ling team 2025, arXiv:2510.18855.
    """
    log_weights = log_ratio(old_log_probs, sampler_log_probs, response_mask, level)
    ratio = log_weights.exp()  # infinity is outside, too
    inside = (ratio >= low) & (ratio <= high) & response_mask.bool()
    return torch.where(inside, ratio, 0)
