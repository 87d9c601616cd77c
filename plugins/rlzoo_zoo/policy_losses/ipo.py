"""IPO: masks a token whose probability has moved far, and penalizes the squared log ratio."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss")
def ipo(
    log_probs,
    sampler_log_probs,
    advantages,
    *,
    threshold: Annotated[float, Range(0, 1)] = 0.1,
    kl_coef: Annotated[float, Range(0)] = 1e-3,
):
    """-r A where abs(pi - mu) <= threshold, else 0, plus kl_coef log(r)^2, per token (B, T).

    r = pi / mu, where mu is the sampling distribution. `dppo_tv` masks by the same distance, but
    only in the direction of the advantage; here a token that has moved against its advantage is
    dropped, too. The penalty acts on all tokens and pulls the policy to the sampler. The formula is
    that of prime-rl's code (`loss.type = "ipo"`), not of a paper, and unrelated to the preference
    loss of that name.
    Source: prime-rl 2026, `trainer/rl/loss.py`.
    """
    log_ratio = log_probs - sampler_log_probs
    moved = log_probs.detach().exp() - sampler_log_probs.exp()
    high, low = moved > threshold, moved < -threshold
    push = torch.where(high | low, 0, -log_ratio.clamp(max=20).exp() * advantages)
    return push + kl_coef * log_ratio.square(), clip_fractions(high, low, push.dtype)
