"""Every token of the mini-batch counts the same."""

from rlzoo import hookimpl


def token_mean(response_mask):
    """w = 1 / (number of actions in the mini-batch) at each action, (B, T); they sum to 1.

    Long responses weigh more than short ones. The mask is the whole mini-batch's, so splitting it
    into micro-batches changes no gradient.
    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476.
    """
    return response_mask / response_mask.sum().clamp(min=1)


@hookimpl
def register_aggregations(register):
    register(token_mean, couples="batch")
