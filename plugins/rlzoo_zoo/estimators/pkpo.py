"""PKPO: 0/1 rewards transformed so that the policy gradient becomes that of pass@k."""

from typing import Annotated, Literal

import torch

from rlzoo import Range, component, group_count, group_sum


@component("estimator")
def pkpo(
    sequence_scores,
    response_mask,
    group_ids,
    *,
    k: Annotated[int, Range(1)] = 4,
    baseline: Literal["none", "leave_one_out"] = "none",
):
    """Correct: A = k/n. Wrong: A = (k/n) rho(n-1, c, k-1). rho(n, c, k) = 1 - C(n-c, k) / C(n, k).

    `sequence_scores` (B,) are 0/1 (above 0.5 means correct), n is the group's size, c its number of
    correct answers, and rho the unbiased estimate of pass@k. The *sum* over the group of A grad log
    pi is an unbiased gradient of pass@k; a loss that averages over rows divides it by n again.
    baseline "leave_one_out" subtracts the pass@k of the others in each subset: correct answers get
    (k/n) (1 - rho(n-1, c-1, k-1)), wrong ones 0. This is also unbiased and has less variance. A
    group smaller than k uses its size as k; a group of one gives zeros, and so does a group that is
    all wrong. A group that is all correct gives k/n by definition, because 0 would bias the
    gradient; with the baseline and k > 1, it gives 0. It fails on graded scores.
    Source: Walder and Karkhanis 2025, arXiv:2505.15201.
    """
    right = (sequence_scores > 0.5).double()
    n = group_count(group_ids).double()
    c = group_sum(right, group_ids)
    size = n.clamp(max=k)  # the k of each row
    if baseline == "none":
        gain = right + (1 - right) * _pass_at(n - 1, c, size - 1)
    else:
        gain = right * (1 - _pass_at(n - 1, c - 1, size - 1))
    advantage = torch.where(n > 1, size / n * gain, 0).to(sequence_scores.dtype)
    return advantage[:, None] * response_mask.to(advantage.dtype)


def _pass_at(n, c, k):
    """1 - C(n-c, k) / C(n, k) for tensors (B,): that one of k drawn out of n is among the c."""
    j = torch.arange(int(k.max()) if len(k) else 0, device=n.device)
    miss = ((n - c)[:, None] - j).clamp(min=0) / (n[:, None] - j).clamp(min=1)
    return 1 - torch.where(j < k[:, None], miss, 1).prod(1)
