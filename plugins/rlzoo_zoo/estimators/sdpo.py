"""SDPO: the policy learns from itself, as it would speak had it seen a right answer."""

from rlzoo import hookimpl


def sdpo(self_teacher_log_probs, old_log_probs, response_mask):
    """A_t = log q - log p, (B, T): q the policy with a right answer of its group in the prompt.

    p is the policy at rollout, q the column `self_teacher_log_probs`; 0 where the group has no
    other right answer. `opd` with oneself for the teacher: no larger model, and where the two part
    is where the answer went wrong. This is the token-level form: the published code with
    full_logit_distillation=false and alpha=1 (TRL's default), which the authors found behind the
    whole vocabulary and ahead of a response's one advantage. Their mean is over the tokens of rows
    that have a right answer to see, and their weights are cut at 2, which one update a batch never
    reaches; the aggregation's is over all tokens. Breaks with a model that cannot use what its
    prompt shows it: the small bases that ship never learned to.
    Source: Hübotter et al. 2026, arXiv:2601.20802; the loss is that of the authors' code,
    compute_self_distillation_loss (abstract, code and README were read, not the whole paper).
    """
    return (self_teacher_log_probs - old_log_probs) * response_mask


@hookimpl
def register_estimators(register):
    register(sdpo)
