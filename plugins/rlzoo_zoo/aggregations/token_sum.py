"""The plain sum over tokens: no denominator at all."""

from rlzoo import hookimpl


def token_sum(response_mask):
    """w = 1 at each action, (B, T).

    The loss and its gradient grow with the batch and with length: the learning rate has to know
    both (Adam forgives, gradient clipping does not). Made for comparing gradients across batches.
    Source: Williams 1992, Machine Learning 8.
    """
    return response_mask / 1  # a new tensor, and a float one


@hookimpl
def register_aggregations(register):
    register(token_sum, couples="batch")
