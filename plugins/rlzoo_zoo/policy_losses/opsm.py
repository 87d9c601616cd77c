"""Off-policy sequence masking: PPO's clip, but bad responses that have become unlikely are
masked."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_sum
from rlzoo_zoo.policy_losses.ppo_clip import ppo_clip

CUT = "log mu is normalized over the kept tokens, so its mean gap to log pi is never 0"


@component(
    "policy_loss", needs_signal=True, caution={"rollout.top_p < 1": CUT, "rollout.top_k > 0": CUT}
)
def opsm(
    log_probs,
    old_log_probs,
    sampler_log_probs,
    advantages,
    response_mask,
    *,
    delta: Annotated[float, Range(0)] = 0.5,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """ppo_clip per token (B, T), 0 where A < 0 and mean_t(log mu - log pi) > delta, in nats.

    mu is the sampling distribution, `sampler_log_probs`, so the mean over a response's actions
    reflects both the steps since then and a sampler that differs from the trainer. Mistakes that
    the policy would no longer make give little information and destabilize training. Good responses
    are kept at any age. It fails with top-k or top-p, because log mu is then normalized over the
    kept tokens, and the mean is never 0. The report gives no delta; 0.5 is TRL's example, and
    slime's default is 1e-4. The formula comes from two detailed summaries and from TRL's and
    slime's code, which agree, not from the report.
    Elsewhere: off_policy_mask_threshold (TRL), off-policy sequence masking.
    Source: DeepSeek-AI 2025 (V3.2), arXiv:2512.02556, eq. 9.
    """
    loss, metrics = ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high
    )
    length = response_mask.bool().sum(-1).clamp(min=1)
    gap = masked_sum(sampler_log_probs - log_probs.detach(), response_mask) / length
    left = (advantages < 0) & (gap > delta)[:, None]
    metrics = {name: torch.where(left, 0, x) for name, x in metrics.items()}
    dropped = left.to(loss.dtype)
    metrics |= {"pg_clipfrac_sequence": dropped, "pg_clipfrac": metrics["pg_clipfrac"] + dropped}
    return torch.where(left, 0, loss), metrics
