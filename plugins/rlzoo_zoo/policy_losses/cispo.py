"""CISPO: clips the weight of a token, never its gradient."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def cispo(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """-sg(clip(rho, 1 - clip_low, 1 + clip_high)) A log pi per token (B, T).

    Every token keeps a gradient, including the rare ones ("but", "wait") that PPO clips after their
    first step. Nothing stops the updates, so the policy drifts over many epochs. The interval is
    that of verl. The paper clamps only above, which is clip_low=1. TRL's `epsilon_high` is the
    bound itself, not its distance from 1: clip_low=1, clip_high=epsilon_high - 1.
    Source: MiniMax 2025, arXiv:2506.13585.
    """
    ratio = (log_probs - old_log_probs).detach().clamp(max=20).exp()
    loss = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages * log_probs
    return loss, clip_fractions(ratio > 1 + clip_high, ratio < 1 - clip_low, loss.dtype)
