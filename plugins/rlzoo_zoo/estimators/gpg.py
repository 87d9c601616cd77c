"""GPG: group-centred rewards, scaled up for the groups that carry no signal."""

from typing import Annotated

import torch

from rlzoo import Range, group_degenerate, group_mean, hookimpl


def gpg(
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    f_norm: Annotated[float, Range(0, None, "neither")] = 1.0,
):
    """A_i = alpha (R_i - mean_g R) / f_norm, alpha = B / (rows in groups with unequal rewards).

    R is `sequence_rewards` (B,). Groups that are all right or all wrong add nothing to the
    gradient but count in a loss's mean; alpha takes them out of it. So it couples the whole
    batch. A group of one, or of equal rewards, gives exact zeros, and so does a batch of such.
    verl counts the rows of nonzero *reward* instead, which is another thing: there all-right
    groups count as signal, and with 0/1 rewards the wrong answers of mixed groups do not.
    Breaks when nearly all groups are flat: alpha then makes few samples count for the whole batch,
    without a bound (the authors draw until it is at most 2.5). `group/no_signal` is their share.
    Source: Chu et al. 2025, arXiv:2504.02546.
    """
    flat = group_degenerate(sequence_rewards, group_ids)
    signal = (~flat).sum().clamp(min=1).to(sequence_rewards.dtype)
    alpha = flat.numel() / signal
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return torch.where(flat, 0, alpha / f_norm * centered)[:, None] * response_mask


@hookimpl
def register_estimators(register):
    register(gpg, couples="batch")
