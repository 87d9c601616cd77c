"""ECHO: PPO's clip on the actions, and cross-entropy on the environment's replies."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.ppo_clip import ppo_clip

CAUTION = {"aggregation.name != seq_mean_token_mean": "it weights observations by other lengths"}


@component("policy_loss", caution=CAUTION)
def echo(
    log_probs,
    old_log_probs,
    advantages,
    observation_nll,
    response_mask,
    *,
    weight: Annotated[float, Range(0), "weight of the cross-entropy"] = 0.05,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """ppo_clip per token (B, T), plus weight `observation_nll` (B,) at each action of the response.

    `observation_nll` is the mean -log pi over the tokens of a response that the environment wrote,
    at the run's temperature: with aggregation=seq_mean_token_mean its mean over responses is added.
    The policy learns what its actions cause, from failed responses too. weight = 0, or a response
    without observations, is `ppo_clip`. The authors use 0.01 to 0.05; from 0.1 on the policy gets
    worse. They leave out their harness's warnings; here all tokens between turns count, those of a
    chat template too. prime-rl divides by the batch's observed tokens instead. A correction weighs
    both parts. It fails when answers are noise, or so alike that predicting them teaches nothing.
    Source: Shrivastava et al. 2026, arXiv:2605.24517, eqs. 1 to 3; their code: microsoft/echo-rl.
    """
    loss, metrics = ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high
    )
    answers = observation_nll[:, None] * response_mask
    return loss + weight * answers, metrics | {"observation_nll": answers.detach()}
