"""GPG: the plain policy gradient; its new part is in the estimator."""

from rlzoo import component

STEPS = "nothing corrects for an older sampling policy, so use one step per batch"

CAUTION = {"train.minibatches > 1": STEPS, "train.epochs > 1": STEPS}


@component("policy_loss", needs_signal=True, caution=CAUTION)
def gpg(log_probs, advantages):
    """-A log pi per token (B, T): no ratio, no clipping, no reference model.

    The formula is that of `reinforce`. The paper's correction for prompts without signal is a
    factor of the advantage, so it belongs to the estimator `gpg`, with which this loss should be
    used. It fails with more than one step per batch, because nothing corrects for the policy that
    sampled.
    Source: Chu et al. 2025, arXiv:2504.02546.
    """
    return -advantages * log_probs
