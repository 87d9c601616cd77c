"""n-step: n rewards, then the critic; a hard window instead of GAE's exponential decay."""

from typing import Annotated

from rlzoo import Discount, Range, component
from rlzoo.ops import n_step_returns


@component("estimator")
def n_step(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
    n: Annotated[int, Range(1)] = 4,
):
    """A_t = sum_{k<n} gamma^k r_{t+k} + gamma^n V_{t+n} - V_t.

    n counts actions. If fewer than n are left, it uses all of them and the discounted
    `bootstrap_values`, which is the Monte Carlo advantage. n = 1 is td0, n >= T is mc, and GAE is
    the geometric mixture over n. All (B, T) except bootstrap_values (B,). It fails like td0 if a
    sparse reward is more than n tokens away and the critic is untrained.
    Source: Sutton and Barto 2018, Reinforcement Learning, chapter 7.
    """
    returns = n_step_returns(rewards, values, bootstrap_values, response_mask, gamma=gamma, n=n)
    return returns - values
