"""ReMax: the reward of the greedy response to the same prompt as the baseline."""

from rlzoo import component
from rlzoo.ops import reward_to_go


@component("estimator")
def remax(rewards, response_mask, greedy_scores):
    """A_t = sum_{s>=t} r_s - R(greedy response), at every action (B, T).

    `greedy_scores` (B,) is a separate column with one greedy rollout per prompt, whose tokens
    count. The baseline depends only on the prompt, so the gradient is unbiased with a single sample
    per prompt and no critic. The baseline is the score before KL, as in verl. It fails when the
    greedy answer is always correct or always wrong (the baseline is then a constant), and with
    rewards per token, because the small reward-to-go of late tokens is compared with the baseline
    of a whole response.
    Source: Li et al. 2023, arXiv:2310.10505.
    """
    return (reward_to_go(rewards, response_mask) - greedy_scores[:, None]) * response_mask
