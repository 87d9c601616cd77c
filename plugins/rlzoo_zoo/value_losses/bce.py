"""Binary cross-entropy: the critic as the probability of success, for 0/1 rewards."""

from rlzoo import component


@component("value_loss")
def bce(value_logits, value_support, returns):
    """-y log p - (1 - y) log(1 - p) per token (B, T).

    p = (V - low) / (high - low) and y = (G - low) / (high - low).
    V = softmax(value_logits) @ value_support is always between the ends of the support, low and
    high; with critic.bins=2, critic.low=0, critic.high=1, this is logistic regression on 0/1
    outcomes. It does not work with a linear head, because a clamp has no gradient outside (0, 1).
    The minimum in expectation is V = E[G], also for soft targets, so lam < 1 is allowed. Returns
    outside the support, which KL in the reward can cause, are clipped to it (`returns_clipped`).
    Source: Good 1952, JRSS B 14; as a value loss Farebrother et al. 2024, arXiv:2403.03950.
    """
    low, high = value_support.min(), value_support.max()
    share = (value_support - low) / (high - low)  # (K,): how much of a success each bin is
    y = ((returns - low) / (high - low)).clamp(0, 1)
    log_pi = value_logits.log_softmax(-1)
    log_p, log_not_p = (
        (log_pi + share.log()).logsumexp(-1),
        (log_pi + (1 - share).log()).logsumexp(-1),
    )
    outside = (returns < low) | (returns > high)
    loss = -y * log_p - (1 - y) * log_not_p
    return loss, {"returns_clipped": outside.to(loss.dtype)}
