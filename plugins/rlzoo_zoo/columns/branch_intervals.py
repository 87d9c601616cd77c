"""The uncertainty of `branch_values`: half the width of a 95 % interval."""

import torch

from rlzoo import component

Z = 1.96


@component("column", shape="BT")
def branch_intervals(branch_scores):
    """Half the width of a 95 % interval of each V^, (B, T), from `branch_scores` (B, T, K).

    For a state whose K scores are all 0 or 1, it is Wilson's interval, which stays wide if K draws
    agree. Otherwise it is 1.96 standard errors (K - 1), which is too narrow for few draws. K = 1
    gives no spread, so the result is 0 for graded scores.
    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953; arXiv:2410.01679 for the draws.
    """
    k = branch_scores.shape[2]
    mean = branch_scores.mean(2)
    wilson = (mean * (1 - mean) / k + Z**2 / (4 * k**2)).clamp(min=0).sqrt() / (1 + Z**2 / k)
    square = (branch_scores - mean[..., None]).square().sum(2)
    normal = (square / max(k - 1, 1) / k).sqrt()
    binary = ((branch_scores == 0) | (branch_scores == 1)).all(2)
    return Z * torch.where(binary, wilson, normal)
