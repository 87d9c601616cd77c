"""High-entropy tokens only: PPO's clip where the policy was uncertain, 0 elsewhere."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import ppo_clip


@component("policy_loss", couples="batch")
def high_entropy(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    entropy,
    *,
    fraction: Annotated[float, Range(0, 1, closed="right")] = 0.2,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.28,
):
    """ppo_clip per token (B, T) on the `fraction` of tokens with the highest entropy, else 0.

    These are the max(1, floor(fraction N)) highest of the mini-batch's N actions, including ties,
    under the current policy. Most tokens of a chain of thought follow from the previous ones; only
    a few are decisive, and according to the paper, training only on these is as good or better for
    large models. This couples the mini-batch. Excluded tokens still count in the loss's
    denominator, as in the paper's formula, so the gradient shrinks to about `fraction`. clip_high
    is that of DAPO, on which the paper builds. fraction=1 gives `ppo_clip`. TRL's
    `top_entropy_quantile` interpolates the threshold, which may select one token more or less. This
    is based on the abstract, the project page, a review with the objective, and TRL's code.
    Source: Wang et al. 2025, arXiv:2506.01939.
    """
    mask = response_mask.bool()
    loss, metrics = ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high
    )
    doubt = torch.where(mask, entropy.detach(), -torch.inf)
    count = max(1, int(fraction * response_mask.bool().sum()))
    kept = mask & (doubt >= doubt.flatten().sort(descending=True).values[count - 1])
    metrics = {name: torch.where(kept, x, 0) for name, x in metrics.items()}
    return torch.where(kept, loss, 0), metrics | {"pg_kept": kept.to(loss.dtype)}
