"""Every response has the same weight, shared equally by its tokens."""

from rlzoo import component


@component("aggregation", couples="batch")
def seq_mean_token_mean(response_mask):
    """w = 1 / (L_i N) at each of the L_i actions of response i, (B, T); N is the number of
    responses with actions.

    GRPO uses it. A token of a long wrong answer is penalized less than one of a short wrong answer,
    which favors length (Liu et al. 2025, arXiv:2503.20783).
    Source: Shao et al. 2024, arXiv:2402.03300.
    """
    length = response_mask.sum(-1, keepdim=True)
    rows = (length > 0).sum().clamp(min=1)
    return response_mask / (length.clamp(min=1) * rows)
