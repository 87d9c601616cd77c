"""VarGrad: the variance over a group of the difference between log-ratio and reward."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_sum
from rlzoo.ops import masked_sum

CAUTION = {
    "whiten != none": "it regresses on the advantages' value, which must come from dr_grpo",
    "aggregation.name != seq_mean_token_sum": (
        "the loss divides its response's square among its tokens"
    ),
}


@component("policy_loss", couples="batch", caution=CAUTION)
def vargrad(
    log_probs,
    ref_log_probs,
    advantages,
    response_mask,
    group_ids,
    *,
    beta: Annotated[float, Range(0, closed="neither"), "reward per nat"] = 0.1,
):
    """G / (2 (G - 1)) (e_i - mean_g e)^2 / L_i at each action of a response, (B, T).

    e_i = beta sum_t (log pi - log pi_ref) - A_i, A_i the response's mean advantage (estimator
    `dr_grpo`, not whitened; a shift of the group changes nothing), G the number of the group's
    responses with an action, L_i that of its actions. With seq_mean_token_sum, the loss is half the
    sample variance of e, averaged over groups. It is 0 exactly if pi = pi_ref exp(R / beta) / Z on
    the group's responses, the optimum of E R - beta KL(pi, pi_ref), regardless of the sampling
    policy. The group's mean estimates beta log Z, so this is trajectory balance without a learned
    Z. On the policy's own samples, the gradient is beta times that of `rloo` with a KL of
    coefficient beta in the reward. `pg_balance_error` is abs(e_i - mean_g e). Groups are not split
    between mini-batches; a group of one gives 0. It fails on long responses with a small beta,
    because the sum of log-ratios is then noise.
    Source: Richter et al. 2020, arXiv:2010.10436; for language models Bartoldson et al. 2025,
    arXiv:2503.18929. GFlowRL (arXiv:2607.13394) clips the mean's part, fixes it at the rollout and
    divides by length; it is not this loss.
    """
    return group_variance(log_probs - ref_log_probs, advantages, response_mask, group_ids, beta)


def group_variance(gap, advantages, response_mask, group_ids, beta):
    """The loss and its metric, (B, T), for log-ratios `gap` (B, T)."""
    mask = response_mask.bool()
    acts, length = mask.any(-1), mask.sum(-1).clamp(min=1)
    error = beta * masked_sum(gap, mask) - masked_sum(advantages, mask) / length  # (B,), else 0
    size = group_sum(acts.to(error.dtype), group_ids)
    error = error - group_sum(error, group_ids) / size.clamp(min=1)
    share = torch.where(size > 1, size / (2 * (size - 1).clamp(min=1)), 0)
    loss = torch.where(mask, (share * error.square() / length)[:, None], 0)
    return loss, {"pg_balance_error": error.detach().abs()[:, None] * mask}
