"""Batch mean: the reward-to-go minus its mean over the batch at the same action."""

from rlzoo import Discount, component
from rlzoo.ops import collapse, expand, reward_to_go


@component("estimator", couples="batch")
def batch_mean(
    rewards,
    response_mask,
    *,
    gamma: Discount = 1.0,
):
    """A_t = G_t - mean of G_t over the rows that have a t-th action, (B, T).

    G_t = sum_k gamma^k r_{t+k} is the reward-to-go; gamma=0 leaves a token's own reward. The
    baseline needs neither a critic nor groups, so it suits one sample per prompt; it includes the
    row itself, so the expected gradient is (B-1)/B times the true one. It fails where prompts
    differ in difficulty, because an easy prompt's responses then all count as good.
    Source: Williams 1992, doi:10.1007/BF00992696; as the baseline of PPO and DG in Kaddour 2026,
    arXiv:2604.06159.
    """
    mask = collapse(response_mask, response_mask)
    returns = collapse(reward_to_go(rewards, response_mask, gamma=gamma), response_mask)
    # Summed action by action in memory, so that the width changes no rounding.
    total, count = ((mask * x).T.contiguous().sum(1) for x in (returns, mask))
    mean = total / count.clamp(min=1)  # (T,)
    return expand((returns - mean) * mask, response_mask)
