"""The plain sum over tokens, without a denominator."""

from rlzoo import component


@component("aggregation", couples="batch")
def token_sum(response_mask):
    """w = 1 at each action, (B, T).

    The loss and its gradient grow with the batch and with length: the learning rate must account
    for both (Adam compensates, gradient clipping does not). It is meant for comparing gradients
    across batches.
    Source: Williams 1992, Machine Learning 8.
    """
    return response_mask / 1  # a new tensor, and a float one
