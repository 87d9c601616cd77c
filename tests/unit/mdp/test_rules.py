"""When an episode ends."""

import torch

from rlzoo.mdp.rules import transition


def test_an_episode_ends_by_eos_or_with_the_last_token_of_the_limit():
    terminated, truncated = transition(torch.tensor([7, 7, 2, 2]), torch.arange(4), [2], 2)
    assert terminated.tolist() == [False, False, True, True]
    assert truncated.tolist() == [False, True, False, False]


def test_no_eos_among_the_first_tokens_ends_an_episode():
    tokens, positions = torch.tensor([[2, 2, 2, 7]]), torch.arange(4)
    terminated, truncated = transition(tokens, positions, [2], 4, least=2)
    assert terminated.tolist() == [[False, False, True, False]]
    assert truncated.tolist() == [[False, False, False, True]]


def test_without_eos_the_limit_terminates():
    tokens, limit = torch.tensor([[2, 2, 2], [7, 7, 7]]), torch.tensor([[2], [3]])
    terminated, truncated = transition(tokens, torch.arange(3), [], limit)
    assert terminated.tolist() == [[False, True, True], [False, False, True]]
    assert not truncated.any()
