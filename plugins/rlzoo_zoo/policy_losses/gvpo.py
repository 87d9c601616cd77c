"""GVPO: a group's variance of the difference between scaled log-ratio and reward."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo_zoo.policy_losses.vargrad import CAUTION, group_variance


@component("policy_loss", couples="batch", caution=CAUTION)
def gvpo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    group_ids,
    *,
    beta: Annotated[float, Range(0, closed="neither"), "reward per nat"] = 0.1,
):
    """G / (2 (G - 1)) (e_i - mean_g e)^2 / L_i at each action of a response, (B, T).

    e_i = beta sum_t (log pi - log pi_old) - A_i: `vargrad` with the rollout policy as the
    reference, which needs no second model; A_i, G and L_i are defined there. The optimum is that of
    E R - beta KL(pi, pi_old), so beta limits the step instead of a clip. At the first step of a
    batch, the gradient is -beta G / (G - 1) (R_i - mean_g R) sum_t grad log pi: that of
    `rloo`, times beta. `pg_balance_error` is abs(e_i - mean_g e). A group of one gives 0. It fails
    with very many steps per batch, which fit the noise of G rewards.
    Source: Zhang et al. 2025, arXiv:2504.19599; the form comes from the authors' code (verl-recipe,
    gvpo_core_algos.py), which sums over groups instead of averaging.
    """
    return group_variance(log_probs - old_log_probs, advantages, response_mask, group_ids, beta)
