"""MOPD: the word of the domain's teacher on each token, and the task's on the whole response."""

from typing import Annotated

import torch

from rlzoo import Range, group_degenerate, group_mean, group_std, hookimpl


def mopd(
    teacher_log_probs,
    old_log_probs,
    sequence_rewards,
    group_ids,
    response_mask,
    *,
    alpha: Annotated[float, Range(0)] = 1.0,
):
    """A_t = log q - log p + alpha (R - mean_g R) / (std_g R + 1e-6), (B, T).

    q is the teacher of the prompt's domain, p the policy at rollout, R `sequence_rewards` (B,); the
    second term is GRPO's, one of the outcome advantages that the report names. The report weighs
    tokens by pi / mu within bounds, and drops those outside: correction=icepop. Which teacher is
    for which prompt, `teacher.domains` sets, by the domain that the task gives it; without, one
    teaches all. The value of alpha, and of the bounds, could not be seen. Breaks where a domain's
    teacher is unlike the student: tokens that the student does not sample get no signal.
    Source: Xiaomi LLM-Core 2026 (MiMo-V2-Flash), arXiv:2601.02780, eq. 7 to 9, read in copies of
    the report; the method by itself: Ma et al. 2026, arXiv:2606.30406, of which the abstract was
    read.
    """
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    scaled = centered / (group_std(sequence_rewards, group_ids) + 1e-6)
    outcome = torch.where(group_degenerate(sequence_rewards, group_ids), 0, scaled)
    return (teacher_log_probs - old_log_probs + alpha * outcome[:, None]) * response_mask


@hookimpl
def register_estimators(register):
    register(mopd)
