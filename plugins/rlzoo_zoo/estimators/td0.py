"""TD(0): the one-step TD error as the advantage, GAE at lam = 0."""

from rlzoo import Discount, hookimpl, td_lambda


def td0(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
):
    """A_t = delta_t = r_t + gamma V_{t+1} - V_t.

    Least variance, and none at all with the exact critic and deterministic rewards. All (B, T)
    but bootstrap_values (B,). Breaks with an untrained critic: under a sparse reward only the last
    token then gets any signal, and the others wait until the critic separates good prefixes from
    bad.
    Source: Sutton 1988, doi:10.1007/BF00115009.
    """
    return td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=0.0)


@hookimpl
def register_estimators(register):
    register(td0)
