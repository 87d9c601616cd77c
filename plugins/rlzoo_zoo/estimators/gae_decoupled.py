"""Decoupled GAE (VC-PPO): one lambda for the advantages and another for the critic's targets."""

from typing import Annotated

from rlzoo import Discount, Range, component, td_lambda


@component(
    "estimator",
    caution={"train.critic_warmup < 1": "an untrained critic biases the actor's advantages"},
)
def gae_decoupled(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
    lam_actor: Annotated[float, Range(0, 1)] = 0.95,
    lam_critic: Annotated[float, Range(0, 1)] = 1.0,
):
    """advantages = GAE(lam_actor); returns = V + GAE(lam_critic).

    With lam < 1, a final reward reaches the critic's early targets damped by lam^distance, so the
    critic learns it slowly on long responses. With lam_critic = 1 the critic gets the undamped
    return, while the policy keeps the lower variance of lam_actor. All (B, T) except
    bootstrap_values (B,). The paper first trains the critic on returns of the frozen policy, which
    is the recipe's warm-up. Equal lambdas give `gae`. It fails without that warm-up: an untrained
    critic biases every lam_actor < 1.
    Elsewhere: gae_lambda_policy (NeMo-RL), decoupled GAE.
    Source: Yuan et al. 2025, arXiv:2503.01491.
    """
    tokens = rewards, values, bootstrap_values, response_mask
    advantages = td_lambda(*tokens, gamma=gamma, lam=lam_actor)
    return advantages, values + td_lambda(*tokens, gamma=gamma, lam=lam_critic)
