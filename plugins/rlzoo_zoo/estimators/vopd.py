"""vOPD: on-policy distillation with the student's own KL to the teacher as the baseline."""

from rlzoo import component


@component("estimator")
def vopd(teacher_log_probs, teacher_kl, old_log_probs, response_mask):
    """A_t = log q - log p + KL(p, q), (B, T): `opd` minus its mean over the tokens of that state.

    q is the teacher, p the policy at rollout, KL over the whole vocabulary (`teacher_kl`). The mean
    of log q - log p under p is -KL, so the expectation does not change. If the student is certain,
    so that one token contributes nearly all of the KL, A is nearly 0. The cost is one pass of each
    model, as for `opd`, and their heads. The paper's cheaper top-k baseline is not implemented.
    This is based on the abstract, not on the authors' code.
    Source: Oh et al. 2026, arXiv:2605.07865.
    """
    return (teacher_log_probs - old_log_probs + teacher_kl) * response_mask
