"""Length-adaptive GAE (VAPO): a lambda for each response, which is closer to 1 for longer
responses."""

from typing import Annotated

from rlzoo import Discount, Range, component, td_lambda


@component("estimator")
def gae_length_adaptive(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    *,
    gamma: Discount = 1.0,
    alpha: Annotated[float, Range(0, None, "neither")] = 0.05,
    lam_critic: Annotated[float, Range(0, 1)] = 1.0,
):
    """advantages = GAE(lam_i), lam_i = max(0, 1 - 1 / (alpha L_i)); returns = V + GAE(lam_critic).

    L_i is the row's number of actions. The sum of the weights lam^k is then about alpha L: the
    same share of a response of any length. At alpha = 0.05 a response of 20 tokens or fewer
    gets lam = 0, so on short answers this is td0: raise alpha there. All (B, T) but
    bootstrap_values (B,). Breaks with an untrained critic, as GAE does, and more so on short rows.
    Elsewhere: length_adaptive_alpha (NeMo-RL).
    Source: Yue et al. 2025, arXiv:2504.05118; NeMo-RL holds lam at 0 too, while in the code of BPCO
    (QPHutu/golden_critic) it is negative there.
    """
    length = response_mask.sum(1, keepdim=True).to(values.dtype).clamp(min=1)
    lam = (1 - 1 / (alpha * length)).clamp(min=0).expand_as(values)
    tokens = rewards, values, bootstrap_values, response_mask
    advantages = td_lambda(*tokens, gamma=gamma, lam=lam)
    return advantages, values + td_lambda(*tokens, gamma=gamma, lam=lam_critic)
