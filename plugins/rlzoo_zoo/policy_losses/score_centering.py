"""Score centering: the policy gradient without the drift that a sampler's mismatch causes."""

import math
from typing import Annotated

import torch

from rlzoo import Range, component

LEAST = -1000.0  # instead of -inf, where the weight is 0


@component("policy_loss", needs_signal=True)
def score_centering(
    log_probs,
    log_pi,
    sampler_log_probs,
    sampler_log_pi,
    advantages,
    *,
    cap: Annotated[float | None, Range(0), "null: no importance weights"] = 2.0,
    floor: Annotated[float, Range(0)] = 0.0,
):
    """-A (w log pi(a) - sum_v c_v log pi(v)) per token (B, T), c_v = clamp(pi(v), floor mu(v), cap
    mu(v)), w = c_a / mu(a), both without gradient.

    mu is the sampling distribution. sum_v c_v grad log pi(v) is the mean of w grad log pi(a) over
    mu: what every token drifts by for a constant advantage. It is 0 where mu = pi or nothing is
    clamped (floor=0, a large cap). Subtracting it makes the mean gradient of a constant advantage 0
    for any mu. cap=null takes w = 1 and c = mu. It requires sampler.distribution=true. It fails
    where the vocabulary is large: both log-probabilities of all tokens are kept.
    Elsewhere: score centering (NeMo-RL, SkyRL, Fireworks).
    Source: Marek and Ryabinin 2026, arXiv:2609.20807.
    """
    p, mu = log_pi.detach().exp(), sampler_log_pi.exp()
    if cap is None:
        weight, c = 1.0, mu
    else:
        gap = (log_probs - sampler_log_probs).detach()
        weight = gap.clamp(max=math.log(max(cap, 1e-30))).exp().clamp(min=min(floor, cap))
        c = p.minimum(cap * mu).maximum(min(floor, cap) * mu)
    drift = (c * log_pi.clamp(min=LEAST)).sum(-1)
    return -advantages * (weight * log_probs - drift), {
        "weight": torch.ones_like(p[..., 0]) * weight
    }
