"""GPG: the plain policy gradient; what is new stands in its estimator."""

from rlzoo import hookimpl


def gpg(log_probs, advantages):
    """-A log pi per token (B, T): no ratio, no clipping, no reference model.

    The same formula as `reinforce`. The paper's correction for prompts without signal is a factor
    of the advantage, so it belongs to the estimator `gpg`, its intended pair.
    Breaks with more than one step per batch: nothing corrects for the policy that sampled.
    Source: Chu et al. 2025, arXiv:2504.02546.
    """
    return -advantages * log_probs


STEPS = "nothing corrects for the policy that sampled, so one step per batch is right"
CAUTION = {"train.minibatches > 1": STEPS, "train.epochs > 1": STEPS}


@hookimpl
def register_policy_losses(register):
    register(gpg, needs_signal=True, caution=CAUTION)
