"""REINFORCE: raise the log-probability of what did better than expected."""

from rlzoo import hookimpl


def reinforce(log_probs, advantages):
    """-A log pi per token (B, T); its gradient is -A grad log pi, the policy gradient itself.

    Nothing holds the policy near the one that sampled: exact for the first step on a batch, biased
    from the second on (use `surrogate` or `ppo_clip` there). Its value has no meaning, only its
    gradient has.
    Source: Williams 1992, Machine Learning 8; Sutton et al. 1999, NeurIPS 12.
    """
    return -advantages * log_probs


STEPS = "biased from the second step on a batch on; use surrogate or ppo_clip there"
CAUTION = {"train.minibatches > 1": STEPS, "train.epochs > 1": STEPS}


@hookimpl
def register_policy_losses(register):
    register(reinforce, needs_signal=True, caution=CAUTION)
