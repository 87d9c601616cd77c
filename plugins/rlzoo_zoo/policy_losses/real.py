"""REAL: rewards as labels, and the policy as their classifier."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_sum
from rlzoo.ops import group_max, masked_sum

CAUTION = {
    "actor.lr > 0.0002": "at the rates of the other recipes it rose and fell, or did not learn",
    "whiten = batch": "whitening over the batch changes the sign of advantages, which is the label",
    "aggregation.name != seq_mean_token_sum": "the loss divides its group's loss among its tokens",
}


@component("policy_loss", couples="batch", caution=CAUTION)
def real(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    group_ids,
    *,
    tau: Annotated[float, Range(0, closed="neither")] = 0.5,
):
    """(log(1 + sum_right e^(-s/tau)) + log(1 + sum_wrong e^(s/tau))) / L_i at each action, (B, T).

    s is a response's mean of log pi - log pi_old, the sums are over its group, L_i its number of
    actions; with seq_mean_token_sum the loss is the mean over groups. A response is correct if the
    sum of its advantages is above 0, and wrong if it is below. With estimator `dr_grpo` and rewards
    0 and 1, these are the labels, and a group that is all correct or all wrong gives 0. The size of
    the advantages has no effect. The gradient in s is at most 1/tau; it shrinks for a correct
    response as it becomes more likely and for a wrong one as it becomes less likely, the opposite
    of a ratio times an advantage. Groups are not split between mini-batches. It fails with
    advantages whose sign is not a label, such as a critic's, and while correct responses are rare:
    n of them in a group add up to a weight of n / (1 + n) at ratio 1, the wrong ones to nearly 1.
    Source: Zhai et al. 2026, arXiv:2602.05630; the form comes from the authors' code (Red-RL/REAL,
    compute_policy_loss_real), which uses the rewards 1 and 0 as labels.
    """
    mask = response_mask.bool()
    length = mask.sum(-1).clamp(min=1)
    score = masked_sum(log_probs - old_log_probs, mask) / length / tau  # (B,)
    total = masked_sum(advantages, mask)
    right, wrong = total > 0, total < 0
    mixed = _any(right, group_ids) & _any(wrong, group_ids)
    loss = _soft_count(-score, right, group_ids) + _soft_count(score, wrong, group_ids)
    loss = torch.where(mixed, loss, 0) / length
    return torch.where(mask, loss[:, None], 0)


def _any(x, group_ids):
    return group_max(x.to(torch.float32), group_ids) > 0


def _soft_count(x, counts, group_ids):
    """log(1 + sum of e^x over the group's rows that count), (B,)."""
    top = group_max(torch.where(counts, x.detach(), 0), group_ids).clamp(min=0)
    mass = torch.where(counts, torch.where(counts, x - top, 0).exp(), 0)
    return top + ((-top).exp() + group_sum(mass, group_ids)).log()
