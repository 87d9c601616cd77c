"""VAPO's loss: PPO's clip and the negative log-likelihood of right answers."""

from typing import Annotated

import torch

from rlzoo import Range, hookimpl


def ppo_nll(
    log_probs,
    old_log_probs,
    advantages,
    sequence_scores,
    response_mask,
    *,
    mu: Annotated[float, Range(0), "of the log-likelihood"] = 0.1,
    threshold: Annotated[float, Range(), "a response with a higher score is right"] = 0.5,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.28,
):
    """ppo_clip, and -mu (N / N_right) log pi at each token of a right response, (B, T).

    N is the number of actions in the mini-batch, N_right that of right responses, whose
    `sequence_scores` (B,) exceed `threshold`: with aggregation=token_mean the second part is mu
    times the mean of -log pi over the tokens of right responses. mu = 0 is `ppo_clip`. It imitates
    what the policy got right, also where the advantage has faded. log rho is held below 20. Breaks
    where all responses are right: then it sharpens the policy without end.
    Source: Yue et al. 2025, arXiv:2504.05118, eq. 10; NeMo-RL (positive_example_nll_weight) has the
    same mean, with the threshold 0.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    right = response_mask * (sequence_scores > threshold).to(response_mask.dtype)[:, None]
    share = response_mask.sum() / right.sum().clamp(min=1)
    high = ((ratio > 1 + clip_high) & (advantages > 0)).to(loss.dtype)
    low = ((ratio < 1 - clip_low) & (advantages < 0)).to(loss.dtype)
    metrics = {"pg_clipfrac_high": high, "pg_clipfrac_low": low, "pg_clipfrac": high + low}
    return loss - mu * share * right * log_probs, metrics


CAUTION = {"aggregation.name != token_mean": "its second part is scaled for token_mean"}


@hookimpl
def register_policy_losses(register):
    register(ppo_nll, couples="batch", caution=CAUTION)
