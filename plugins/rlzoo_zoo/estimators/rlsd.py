"""RLSD: GRPO's advantage decides the direction, the policy that has seen an answer the size."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.estimators.grpo import grpo


@component("estimator")
def rlsd(
    self_teacher_log_probs,
    old_log_probs,
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    strength: Annotated[float, Range(0, 1)] = 0.5,
    clip: Annotated[float, Range(0, 1)] = 0.2,
    eps: Annotated[float, Range(0)] = 1e-6,
):
    """A_t = A (1 - strength + strength clip((q / p)^sign(A), 1 - clip, 1 + clip)), (B, T).

    A is GRPO's advantage, p the policy at rollout, q the policy with a correct answer of its group
    in the prompt (`self_teacher_log_probs`). Tokens that the answer makes more likely get more of a
    good response's credit and less of a bad one's blame; none changes its sign. strength=0 is
    `grpo`, and so are groups without another correct answer. The paper lowers `strength` to 0
    during training; here it is constant (ms-swift begins with 0.5). It fails with a model
    that cannot use an answer in its prompt.
    Elsewhere: advantage_reweight=rlsd (ms-swift), self-distilled RLVR.
    Source: Yang et al. 2026, arXiv:2604.03128, equations 13 to 15 (from a translation of the paper;
    the mean with the plain advantage as in ms-swift).
    """
    advantages = grpo(sequence_rewards, response_mask, group_ids, eps=eps)
    ratio = ((self_teacher_log_probs - old_log_probs) * advantages.sign()).clamp(max=20).exp()
    return advantages * (1 - strength + strength * ratio.clamp(1 - clip, 1 + clip))
