"""The sum of a response's tokens over a constant length: no length bias, and a tame scale."""

from typing import Annotated

from rlzoo import Range, hookimpl


def seq_mean_token_sum_norm(response_mask, *, length: Annotated[int, Range(1)] = 1024):
    """w = 1 / (length N) at each action, N the responses with any in the mini-batch, (B, T).

    Dr. GRPO's. `length` is a constant of the run, usually ${rollout.max_new_tokens}; it only scales
    the loss, but against a KL or entropy coefficient (same weights) and gradient clipping nothing
    changes with batch or padding. verl divides by the padded width by default, so there
    the scale changes from batch to batch.
    Source: Liu et al. 2025, arXiv:2503.20783.
    """
    rows = response_mask.bool().any(-1).sum().clamp(min=1)
    return response_mask / (length * rows)


@hookimpl
def register_aggregations(register):
    register(seq_mean_token_sum_norm, couples="batch")
