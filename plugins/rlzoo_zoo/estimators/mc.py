"""MC: the Monte Carlo return minus the critic's value, GAE at lam = 1."""

from rlzoo import Discount, hookimpl, td_lambda


def mc(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
):
    """A_t = sum_k gamma^k r_{t+k} (+ gamma^N bootstrap where truncated) - V_t.

    Unbiased under any critic where episodes terminate; the critic is a baseline only. All (B, T)
    but bootstrap_values (B,). Breaks on long noisy episodes, whose variance it carries whole.
    Source: Williams 1992, doi:10.1007/BF00992696; Sutton and Barto 2018, chapter 5.
    """
    return td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=1.0)


@hookimpl
def register_estimators(register):
    register(mc)
