"""SDPO: the policy learns from itself with a correct answer in its prompt."""

from rlzoo import component


@component("estimator")
def sdpo(self_teacher_log_probs, old_log_probs, response_mask):
    """A_t = log q - log p, (B, T), where q is the policy with a correct answer of its group in the
    prompt. p is the policy at rollout, and log q is the column `self_teacher_log_probs`; A is 0 if
    the group has no other correct answer.

    This is `opd` with the policy as its own teacher: it needs no larger model, and the two differ
    where the answer went wrong. This is the token-level form of the published code with
    full_logit_distillation=false and alpha=1 (TRL's default). The authors found it worse than using
    the whole vocabulary and better than one advantage per response. Their mean covers only rows
    with a correct answer to see, and their weights are clipped at 2, which one update per batch
    never reaches; here the aggregation covers all tokens. It fails with a model that cannot use an
    answer in its prompt, such as rlzoo's small base models.
    Source: Hübotter et al. 2026, arXiv:2601.20802; the loss is that of the authors' code,
    compute_self_distillation_loss (based on the abstract, the code and the README, not the whole
    paper).
    """
    return (self_teacher_log_probs - old_log_probs) * response_mask
