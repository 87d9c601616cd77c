"""Confidence: a response's reward minus the policy's own chance of agreeing with itself."""

from rlzoo import component


@component("estimator")
def confidence(sequence_rewards, sum_pi_squared, response_mask):
    """A_t = R - sum_a pi(a | s_t)^2 at every token, (B, T).

    The baseline is the probability that two draws from the policy are the same token. In a
    classification with reward 1 for the right class, it is the expected reward if the policy's
    probabilities are right. It needs neither a critic nor groups. It depends on no action, so it
    adds no bias, but it fails to center rewards on another scale than 0 to 1, or where a confident
    policy is wrong.
    Source: Osband 2026, arXiv:2603.14608, as deepakvijaykee/rl-experiments implements it.
    """
    return (sequence_rewards[:, None] - sum_pi_squared) * response_mask
