"""Squared error of the critic."""

from rlzoo import component


@component("value_loss")
def mse(value_preds, returns):
    """1/2 (V - G)^2 per token (B, T), G = `returns`.

    Its gradient is the critic's error. It fails when returns have heavy tails, because one outlier
    then dominates the step.
    Source: Sutton and Barto 2018, chapter 9.
    """
    return 0.5 * (value_preds - returns).square()
