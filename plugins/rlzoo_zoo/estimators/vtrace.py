"""V-trace: multi-step targets from another policy's samples with truncated importance weights."""

from typing import Annotated

from rlzoo import Discount, Range, component, next_action, td_lambda


@component("estimator")
def vtrace(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    old_log_probs,
    sampler_log_probs,
    *,
    gamma: Discount = 1.0,
    lam: Annotated[float, Range(0, 1)] = 1.0,
    rho_bar: Annotated[float, Range(0, None, "neither")] = 1.0,
    c_bar: Annotated[float, Range(0, None, "neither")] = 1.0,
):
    """A_t = rho_t (r_t + gamma v_{t+1} - V_t); returns are the targets v_t.

    v_t = V_t + acc_t, acc_t = rho_t delta_t + gamma lam c_t acc_{t+1}, rho = min(rho_bar, pi/mu),
    c = min(c_bar, pi/mu); pi/mu = exp(old_log_probs - sampler_log_probs) per token. All (B, T)
    except bootstrap_values (B,). v after the last action is `bootstrap_values`. The advantage
    already includes the weight rho, so a loss with its own sampler correction would apply it twice.
    On policy (pi = mu), v is the lam-return, so A at lam = 1 equals mc; at lam < 1 it differs from
    GAE, which uses acc itself, while V-trace uses one step and then v. rho_bar determines the fixed
    point (a policy between mu and pi), c_bar the variance. It fails with a bad critic, since
    truncated weights depend on it more; the product of c shrinks with every off-policy token.
    Source: Espeholt et al. 2018, arXiv:1802.01561.
    """
    ratio = (old_log_probs - sampler_log_probs).exp()
    rho = ratio.clamp(max=rho_bar)
    targets = values + td_lambda(
        rewards, values, bootstrap_values, response_mask,
        gamma=gamma, lam=lam, rho=rho, c=ratio.clamp(max=c_bar),
    )  # fmt: skip
    ahead = next_action(targets, response_mask, bootstrap_values)
    return rho * (rewards + gamma * ahead - values), targets
