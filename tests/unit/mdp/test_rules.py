"""When an episode ends."""

import torch

from rlzoo.mdp.rules import transition


def test_an_episode_ends_by_eos_or_with_the_last_token_of_the_limit():
    terminated, truncated = transition(torch.tensor([7, 7, 2, 2]), torch.arange(4), [2], 2)
    assert terminated.tolist() == [False, False, True, True]
    assert truncated.tolist() == [False, True, False, False]
