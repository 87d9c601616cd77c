"""GPG: group-centered rewards, scaled up to compensate for groups without signal."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_degenerate, group_mean


@component("estimator", couples="batch")
def gpg(
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    f_norm: Annotated[float, Range(0, None, "neither")] = 1.0,
):
    """A_i = alpha (R_i - mean_g R) / f_norm, alpha = B / (rows in groups with unequal rewards).

    R is `sequence_rewards` (B,). Groups that are all correct or all wrong add nothing to the
    gradient but count in the loss's mean; alpha compensates for this. It therefore couples the
    whole batch. A group of one, or of equal rewards, gives exact zeros, and so does a batch of such
    groups. verl instead counts the rows with nonzero *reward*: there, all-correct groups count as
    signal, and with 0/1 rewards the wrong answers of mixed groups do not. It fails when nearly all
    groups are flat: alpha is unbounded, so a few samples then count for the whole batch (the
    authors sample until alpha is at most 2.5). `group/no_signal` is their share.
    Source: Chu et al. 2025, arXiv:2504.02546.
    """
    flat = group_degenerate(sequence_rewards, group_ids)
    signal = (~flat).sum().clamp(min=1).to(sequence_rewards.dtype)
    alpha = flat.numel() / signal
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return torch.where(flat, 0, alpha / f_norm * centered)[:, None] * response_mask
