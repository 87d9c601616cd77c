"""PPO's clip with an entropy bonus whose coefficient is a column and can adapt."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import ppo_clip


@component("policy_loss")
def ppo_entropy(
    log_probs,
    old_log_probs,
    advantages,
    entropy,
    entropy_coef,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """ppo_clip per token (B, T), minus `entropy_coef` times the policy's entropy there.

    The column `entropy_coef` adapts the bonus to the entropy; its options are under
    columns.entropy_coef. `actor.entropy_coef` would be added to it. With a bonus of 0, this is
    `ppo_clip`. The aggregation weights the bonus like the loss, so only token_mean gives TRL's mean
    entropy per token. A correction also weights the bonus.
    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, with TRL's adaptive coefficient.
    """
    loss, metrics = ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high
    )
    return loss - entropy_coef * entropy, metrics | {"entropy_bonus": entropy_coef}
