"""VAPO's loss: PPO's clip plus the negative log-likelihood of correct answers."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import ppo_clip

CAUTION = {"aggregation.name != token_mean": "its second part is scaled for token_mean"}


@component("policy_loss", couples="batch", caution=CAUTION)
def ppo_nll(
    log_probs,
    old_log_probs,
    advantages,
    sequence_scores,
    response_mask,
    *,
    mu: Annotated[float, Range(0), "weight of the log-likelihood"] = 0.1,
    threshold: Annotated[float, Range(), "responses with a higher score are correct"] = 0.5,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.28,
):
    """ppo_clip, plus -mu (N / N_right) log pi at each token of a correct response, (B, T).

    N is the number of actions in the mini-batch, and N_right that in correct responses, whose
    `sequence_scores` (B,) exceed `threshold`. With aggregation=token_mean, the second part is mu
    times the mean of -log pi over the tokens of correct responses. mu = 0 gives `ppo_clip`. It
    imitates correct responses even if their advantage has vanished. log rho is clamped at 20. It
    fails when all responses are correct, because it then sharpens the policy without limit.
    Source: Yue et al. 2025, arXiv:2504.05118, eq. 10; NeMo-RL (positive_example_nll_weight) has the
    same mean, with the threshold 0.
    """
    loss, metrics = ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high
    )
    right = response_mask * (sequence_scores > threshold).to(response_mask.dtype)[:, None]
    share = response_mask.sum() / right.sum().clamp(min=1)
    return loss - mu * share * right * log_probs, metrics
