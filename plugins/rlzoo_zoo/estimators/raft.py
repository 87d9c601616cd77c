"""RAFT: learns only from correct responses, without a baseline."""

from typing import Annotated

from rlzoo import Range, component


@component("estimator")
def raft(
    sequence_scores,
    response_mask,
    *,
    threshold: Annotated[float, Range(), "responses with a higher score are correct"] = 0.0,
):
    """A_i = 1 at every token of a correct response, 0 at every other token, (B, T).

    A response is right if its `sequence_scores` (B,) exceed `threshold`. With the loss `reinforce`
    and one step per batch this is rejection sampling and supervised learning on what is kept
    (RAFT); with `ppo_clip` and several steps it is RAFT++. It needs no group. The expected
    gradient is that of `reinforce` with 0/1 rewards, so it is unbiased, with a larger variance
    than a baseline leaves; a wrong response has no effect. With aggregation=token_mean the mean is
    over all tokens, those of wrong responses included. It fails when scores are not 0/1: how much
    better a right response is does not count.
    Source: Dong et al. 2023, arXiv:2304.06767, who keep the best of K by a reward model; this is
    the form for verifiable rewards of Xiong et al. 2025, arXiv:2504.11343, whose code
    (RLHFlow/Minimal-RL) weighs a right response by its score.
    """
    return (sequence_scores > threshold).to(sequence_scores.dtype)[:, None] * response_mask
