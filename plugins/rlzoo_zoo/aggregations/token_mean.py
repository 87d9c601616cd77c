"""Every token of the mini-batch has the same weight."""

from rlzoo import component


@component("aggregation", couples="batch")
def token_mean(response_mask):
    """w = 1 / (number of actions in the mini-batch) at each action, (B, T); they sum to 1.

    Long responses have more weight than short ones. The mask covers the whole mini-batch, so
    splitting it into micro-batches does not change the gradient.
    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476.
    """
    return response_mask / response_mask.sum().clamp(min=1)
