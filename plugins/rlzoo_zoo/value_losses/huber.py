"""Huber's loss: squared for small errors, linear for large ones."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("value_loss")
def huber(value_preds, returns, *, delta: Annotated[float, Range(0, closed="right")] = 1.0):
    """e^2 / 2 where abs(e) <= delta, else delta (abs(e) - delta / 2), e = V - G, per token (B, T).

    The gradient of an error is at most delta (in units of the reward). Beyond delta, the optimum is
    the median, not the mean: with skewed returns and a small delta, the critic and the advantages
    are biased.
    Source: Huber 1964, Annals of Mathematical Statistics 35.
    """
    return torch.nn.functional.huber_loss(value_preds, returns, reduction="none", delta=delta)
