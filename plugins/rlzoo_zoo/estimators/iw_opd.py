"""IW-OPD: on-policy distillation with weights that fall as the response strays from the teacher."""

from typing import Annotated

from rlzoo import Range, component


@component("estimator")
def iw_opd(
    teacher_log_probs,
    old_log_probs,
    response_mask,
    *,
    weight_max: Annotated[float, Range(1)] = 1.5,
):
    """A_t = w_t (log q - log p), (B, T), w_t = 1 + (weight_max - 1) (1 - F_{t-1}).

    F_{t-1} = sum_{k<t} d_k / (sum_k d_k + 1e-8), d = abs(log q - log p): the share of the
    response's total disagreement before token t. So w falls from weight_max at the first token
    towards 1 at the last, because a teacher is unreliable on a prefix that it would not have
    written. q is the teacher, p the policy at rollout. weight_max = 1 gives `opd`. The share is
    relative: the weights fall as steeply on a response with little disagreement as on one with
    much.
    Source: Xie et al. 2026, arXiv:2606.22600; the formula and weight_max come from the authors'
    code (dp_actor.py, iw_opd_weight_*). In TRL's trainer the option is gamma = weight_max - 1.
    """
    gain = (teacher_log_probs - old_log_probs) * response_mask
    apart = gain.abs()
    before = apart.cumsum(1) - apart
    strayed = before / (apart.sum(1, keepdim=True) + 1e-8)
    return (1 + (weight_max - 1) * (1 - strayed).clamp(0, 1)) * gain
