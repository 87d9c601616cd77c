"""DIS: double-sided importance sampling against the sampler, without an old policy."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions

CUT = "mu is normalized over the kept tokens, so r is the kept mass even where nothing has changed"


@component(
    "policy_loss", needs_signal=True, caution={"rollout.top_p < 1": CUT, "rollout.top_k > 0": CUT}
)
def dis(
    log_probs,
    sampler_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.3,
    clip_high: Annotated[float, Range(0)] = 5.0,
):
    """-r A where 1 - clip_low < r < 1 + clip_high, else 0, r = pi / mu, per token (B, T).

    mu is the sampling distribution, so one ratio covers staleness, rounding and the steps of the
    update; there is no old policy. Unlike PPO's clip, the interval holds for both signs of A
    (double-sided importance sampling): a good token that has become unlikely is dropped as well. It
    fails with top-k or top-p, where r is the kept mass at best. The bounds are those for
    mathematics; for software the paper takes 0.8 and 3.
    Elsewhere: double-sided importance sampling.
    Source: SAO, 2026, arXiv:2607.07508.
    """
    ratio = (log_probs - sampler_log_probs).clamp(max=20).exp()
    high, low = ratio >= 1 + clip_high, ratio <= 1 - clip_low
    loss = torch.where(high | low, 0, -ratio * advantages)
    return loss, clip_fractions(high, low, loss.dtype)
