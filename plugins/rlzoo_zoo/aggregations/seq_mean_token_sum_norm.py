"""The sum over a response's tokens divided by a constant length, without length bias."""

from typing import Annotated

from rlzoo import Range, component


@component("aggregation", couples="batch")
def seq_mean_token_sum_norm(response_mask, *, length: Annotated[int, Range(1)] = 1024):
    """w = 1 / (length N) at each action, (B, T); N is the number of responses with actions in the
    mini-batch.

    Dr. GRPO uses it. `length` is a constant, usually ${rollout.max_new_tokens}. It only scales the
    loss, so the balance with KL, entropy and gradient clipping does not depend on batch or padding.
    By default, verl divides by the padded width, so its scale varies between batches.
    Source: Liu et al. 2025, arXiv:2503.20783.
    """
    rows = response_mask.bool().any(-1).sum().clamp(min=1)
    return response_mask / (length * rows)
