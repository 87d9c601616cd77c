"""Surprise credit: a column plugin, and an estimator that uses it."""

import torch

from rlzoo import component, group_mean


def _example(generator, rows, steps):
    """A made-up column for the conformance kit: never negative, as shares are."""
    return torch.rand(rows, steps, generator=generator)


@component("column", shape="BT", example=_example)
def surprise_share(old_log_probs, response_mask):
    """-log pi_t / -sum_s log pi_s over the response's actions, (B, T); 0 where nothing surprised.

    Source: the documentation of rlzoo.
    """
    surprise = -old_log_probs * response_mask
    return surprise / surprise.sum(-1, keepdim=True).clamp(min=1e-8)


@component("estimator")
def surprise_credit(sequence_rewards, response_mask, group_ids, surprise_share):
    """A_it = L_i share_it (R_i - mean_g R), (B, T): the outcome, spread by surprise.

    L_i is the number of actions, so the mean over a response is that of `dr_grpo`. A group of one,
    or of equal rewards, gives zeros. It fails when the decisive token was a likely one.
    Source: the documentation of rlzoo.
    """
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)  # (B,)
    length = response_mask.sum(-1)
    return (length * centered)[:, None] * surprise_share  # (B, T)
