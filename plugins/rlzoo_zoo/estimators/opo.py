"""OPO: the group's length-weighted mean as the baseline, which nearly minimizes the variance."""

import torch

from rlzoo import component, group_degenerate, group_sum
from rlzoo.ops import leave_one_out_mean


@component("estimator")
def opo(sequence_rewards, response_mask, group_ids, *, leave_one_out: bool = False):
    """A_i = R_i - sum_j L_j R_j / sum_j L_j over the group, at every token.

    R is `sequence_rewards` (B,), L the number of actions. If each token's gradient adds about the
    same squared norm, this is the baseline of least variance. leave_one_out sums only over j != i
    and is unbiased; the paper's form is slightly biased by its own sample. The result is 0 for a
    group of one (verl returns the raw reward), for equal rewards, and, with leave_one_out, for a
    row whose partners have no action. It fails when length correlates with correctness, because the
    baseline then follows the long responses.
    Source: Hao et al. 2025, arXiv:2505.23585.
    """
    length = response_mask.sum(1).to(sequence_rewards.dtype)
    total = group_sum(length, group_ids)
    if leave_one_out:
        baseline = leave_one_out_mean(sequence_rewards, group_ids, length)
        alone = total <= length
    else:
        baseline = group_sum(length * sequence_rewards, group_ids) / total.clamp(min=1)
        alone = total <= 0
    zero = group_degenerate(sequence_rewards, group_ids) | alone
    return torch.where(zero, 0, sequence_rewards - baseline)[:, None] * response_mask
