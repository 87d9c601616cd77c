"""TD(0): the one-step TD error as the advantage, GAE at lam = 0."""

from rlzoo import Discount, component, td_lambda


@component("estimator")
def td0(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
):
    """A_t = delta_t = r_t + gamma V_{t+1} - V_t.

    It has the least variance, and none with an exact critic and deterministic rewards. All (B, T)
    except bootstrap_values (B,). It fails with an untrained critic: with a sparse reward, only the
    last token then gets a signal, until the critic distinguishes good prefixes from bad ones.
    Source: Sutton 1988, doi:10.1007/BF00115009.
    """
    return td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=0.0)
