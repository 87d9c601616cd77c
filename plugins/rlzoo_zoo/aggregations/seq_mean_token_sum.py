"""The mean over responses of the sum over tokens: the gradient of the expected return."""

from rlzoo import component


@component("aggregation", couples="batch")
def seq_mean_token_sum(response_mask):
    """w = 1 / N at each action, (B, T); N is the number of responses with actions in the
    mini-batch.

    It follows the policy gradient theorem: with exact advantages, the loss has the gradient of the
    mean return. Long responses take bigger steps, and the loss scales with length.
    Source: Williams 1992, Machine Learning 8; Ahmadian et al. 2024, arXiv:2402.14740.
    """
    rows = response_mask.bool().any(-1).sum().clamp(min=1)
    return response_mask / rows
