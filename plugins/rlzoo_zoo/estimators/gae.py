"""GAE: exponentially weighted TD errors, whose lambda trades bias against variance."""

from typing import Annotated

from rlzoo import Discount, Range, component, td_lambda


@component("estimator")
def gae(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
    lam: Annotated[float, Range(0, 1)] = 0.95,
):
    """A_t = sum_k (gamma lam)^k delta_{t+k}, with delta_t = r_t + gamma V_{t+1} - V_t.

    lam = 0 is the TD error (low variance, biased by the critic's errors), lam = 1 is the Monte
    Carlo return minus V (unbiased, high variance). V_{t+1} after the last action is
    `bootstrap_values`. All (B, T) except bootstrap_values (B,). It fails when the critic is worse
    than a constant, because every lam < 1 then passes its error to the policy.
    Elsewhere: skip-observation GAE.
    Source: Schulman et al. 2015, arXiv:1506.02438.
    """
    return td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=lam)
