"""Clipped mean: the group-centred reward, cut off where one reward would decide the step."""

from typing import Annotated

from rlzoo import Range, component, group_mean


@component("estimator")
def clipped_mean(
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    limit: Annotated[float, Range(0, closed="neither")] = 1.0,
):
    """A_i = clip(R_i - mean_g R, -limit, limit) at every token of response i, (B, T).

    R is `sequence_rewards` (B,), g the samples of the same prompt; `limit` is in units of the
    reward. A group of one, or of equal rewards, gives zeros. It fails when rewards are skewed: what
    is cut off on one side is missing from the mean, so the advantages no longer add up to zero.
    Source: the documentation of rlzoo.
    """
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)  # (B,)
    return centered.clamp(-limit, limit)[:, None] * response_mask  # (B, T)
