"""The task's own verifier as the reward."""

from rlzoo import component


@component("reward")
def verifier(task_scores):
    """The result of the task's `score` per token, (B, T); an outcome is at the last action.

    Source: the task.
    """
    return task_scores
