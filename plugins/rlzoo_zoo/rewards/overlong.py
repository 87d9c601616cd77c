"""DAPO's soft overlong penalty for responses close to the length limit."""

from typing import Annotated

from rlzoo import Range, component


@component("reward")
def overlong(
    response_mask,
    *,
    max_length: Annotated[int, Range(1)] = 20480,
    buffer: Annotated[int, Range(1)] = 4096,
):
    """0 up to max_length - buffer actions, then falling linearly to -1 at max_length, (B,).

    clip((max_length - buffer - L) / buffer, -1, 0), where L is the number of actions. Add it to the
    task's reward with a weight; max_length is usually ${rollout.max_new_tokens}. The defaults come
    from the paper. It fails when correct answers need the length, because it then trades accuracy
    for brevity. verl's `overlong_buffer` is the same, with its penalty_factor as the weight.
    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476.
    """
    length = response_mask.bool().sum(-1)
    return ((max_length - buffer - length) / buffer).clamp(-1, 0)
