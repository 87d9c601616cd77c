"""MOPD: the domain teacher's signal on each token plus the task's signal on the whole response."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.estimators.grpo import grpo


@component("estimator")
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

    q is the teacher of the prompt's domain, p is the policy at rollout, and R is `sequence_rewards`
    (B,). The second term is GRPO's, one of the outcome advantages in the report. The report weights
    tokens by pi / mu within bounds and drops tokens outside, which is correction=icepop.
    `teacher.domains` assigns teachers to the domains of the task; without it, one teacher is used
    for all prompts. The values of alpha and of the bounds are unknown to us. It fails when a
    domain's teacher is unlike the student: tokens that the student does not sample get no signal.
    Source: Xiaomi LLM-Core 2026 (MiMo-V2-Flash), arXiv:2601.02780, eq. 7 to 9, from copies of the
    report; the method itself: Ma et al. 2026, arXiv:2606.30406, only the abstract.
    """
    outcome = grpo(sequence_rewards, response_mask, group_ids, eps=1e-6)
    return (teacher_log_probs - old_log_probs + alpha * outcome) * response_mask
