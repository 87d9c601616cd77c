"""REINFORCE: raises the log-probability of tokens that did better than expected."""

from rlzoo import component

STEPS = "it is biased from the second step of a batch on; use surrogate or ppo_clip there"

CAUTION = {"train.minibatches > 1": STEPS, "train.epochs > 1": STEPS}


@component("policy_loss", needs_signal=True, caution=CAUTION)
def reinforce(log_probs, advantages):
    """-A log pi per token (B, T); its gradient is -A grad log pi, the policy gradient itself.

    Nothing keeps the policy near the one that sampled, so it is exact for the first step on a batch
    and biased from the second on (use `surrogate` or `ppo_clip` there). Its value is meaningless;
    only its gradient matters.
    Source: Williams 1992, Machine Learning 8; Sutton et al. 1999, NeurIPS 12.
    """
    return -advantages * log_probs
