"""VIMPO: the log-ratio to the reference is tied to the outcome, and PPO follows what that implies."""

from typing import Annotated

import torch

from rlzoo import Range, group_mean, hookimpl
from rlzoo.ops import masked_sum


def vimpo(
    log_probs,
    old_log_probs,
    ref_log_probs,
    full_kl,
    advantages,
    sequence_rewards,
    group_ids,
    response_mask,
    *,
    beta: Annotated[float, Range(0, closed="neither"), "of the estimator, too"] = 5e-4,
    actor_coef: Annotated[float, Range(0), "of PPO's part"] = 5e-3,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.28,
    clip_ratio_c: Annotated[float, Range(1), "bound of PPO's part where A < 0"] = 10.0,
):
    """(N / B L_i) (S_i - (R_i - mean_g R))^2 / 2 + actor_coef dual-clip PPO, a loss per token.

    S_i = sum_t beta (log(pi / pi_ref) - KL_t), KL_t without gradient: what the policy says the
    response is worth beyond its prompt's value, for which the group's mean reward stands. B rows
    of L_i actions, N in all: with aggregation=token_mean the first part is the mean over
    responses and PPO's the mean over tokens, as the authors'. KL_t is that of the rollout, so
    that it is the policy's own with one step per batch (train.minibatches=1), as they train.
    Metrics: `pg_value_error`, abs(S - target); `pg_clipfrac`. Breaks with another aggregation, and
    where the reward does not come at the end.
    Source: Kang et al. 2026, arXiv:2606.20008: abstract, and the authors' code (vimpo_core_algos.py:
    squared error, exact KL, gamma 1).
    """
    mask = response_mask.to(log_probs.dtype)
    implied = masked_sum(beta * (log_probs - ref_log_probs - full_kl), mask)  # (B,)
    error = implied - (sequence_rewards - group_mean(sequence_rewards, group_ids))
    length = mask.sum(1)
    tokens, rows = length.sum(), (length > 0).sum()
    share = tokens / rows.clamp(min=1) / length.clamp(min=1)
    value = (share * error.square() / 2)[:, None].expand_as(log_probs)
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.clamp(-20, 20).exp()
    held = ratio.clamp(1 - clip_low, 1 + clip_high)
    pessimistic = torch.maximum(-ratio * advantages, -held * advantages)
    bounded = torch.minimum(pessimistic, -clip_ratio_c * advantages)
    actor = torch.where(advantages < 0, bounded, pessimistic)
    clipped = (pessimistic > -ratio * advantages).to(mask) * mask
    metrics = {
        "pg_value_error": error.detach().abs()[:, None] * mask,
        "pg_clipfrac": clipped,
    }
    return (value + actor_coef * actor) * mask, metrics


@hookimpl
def register_policy_losses(register):
    register(vimpo, couples="batch")
