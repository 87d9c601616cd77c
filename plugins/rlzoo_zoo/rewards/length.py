"""Length: a penalty for long responses relative to the group's longest, scaled by its success."""

from rlzoo import component, group_mean
from rlzoo.ops import group_max, masked_sum


@component("reward")
def length(task_scores, response_mask, group_ids):
    """-m L_i / max_g L, (B,), where m is the group's mean of the task's scores and L the number of
    actions.

    Add it to the task's reward with a weight w: R_i - w m L_i / max_g L. A group that never solves
    its prompt has no penalty, so brevity matters only if there is success; of two correct
    responses, the shorter one gets more. m is the mean of the summed `task_scores` (B, T), for
    scores of at least 0. In a group of one, the penalty is m. It fails with w near 1, because the
    shortest wrong response then competes with a long correct one.
    Source: PrimeIntellect-ai/prime-rl, pull request 2901 (algo/grpo.py, num_output_tokens_weight).
    """
    actions = response_mask.bool().sum(1).to(task_scores.dtype)
    longest = group_max(actions, group_ids).clamp(min=1)
    success = group_mean(masked_sum(task_scores, response_mask), group_ids)
    return -success * actions / longest
