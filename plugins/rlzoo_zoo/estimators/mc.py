"""MC: the Monte Carlo return minus the critic's value, GAE at lam = 1."""

from rlzoo import Discount, component, td_lambda


@component("estimator")
def mc(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
):
    """A_t = sum_k gamma^k r_{t+k} (+ gamma^N bootstrap if truncated) - V_t.

    It is unbiased with any critic if episodes terminate, since the critic is only a baseline. All
    (B, T) except bootstrap_values (B,). It fails on long noisy episodes, because it keeps all of
    their variance.
    Source: Williams 1992, doi:10.1007/BF00992696; Sutton and Barto 2018, chapter 5.
    """
    return td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=1.0)
