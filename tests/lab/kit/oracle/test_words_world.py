"""The world of words: what it pays, and that it favours a lambda between 0 and 1."""

import pytest
import torch

from rlzoo_lab.kit.oracle.bias import report
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import make_critic, make_world


def test_each_right_word_is_paid_when_its_last_token_is_chosen():
    oracle = make_world("words", make_tree(2, 7, stops=False, prompts=2), seed=1)
    episodes = enumerate_episodes(oracle)
    paid = oracle.rewards[episodes.states, episodes.actions]  # (B, 7)
    assert not paid[:, [0, 1, 3, 4, 6]].any()
    for prompt in range(2):
        mine = episodes.prompt == prompt
        words, rewards = episodes.actions[mine], paid[mine]
        for end in (2, 5):
            right = words[rewards[:, end] > 0][:, end - 2 : end + 1].unique(dim=0)
            assert len(right) == 1  # one secret, whatever stands before and after it
            assert (rewards[:, end] > 0).sum() == 2**7 / 2**3
        assert rewards.sum(1).max() == 1
        assert sorted(rewards.sum(1).unique().tolist()) == [0, 0.5, 1]


def test_no_word_fits_a_horizon_that_is_too_short():
    oracle = make_world("words", make_tree(3, 2))
    assert not oracle.rewards.any()


@pytest.mark.landing
def test_an_interior_lambda_is_best_before_the_critic_knows_anything(zoo):
    """The prediction of docs/results.md, on three words."""
    oracle = make_world("words", make_tree(2, 9, stops=False))
    episodes = enumerate_episodes(oracle)
    found = {}
    for critic in ("zero", "exact"):
        columns = make_columns(oracle, episodes, make_critic(critic, oracle))
        for lam in (0.0, 0.8, 1.0):
            subject = EstimatorInWorld(
                zoo.estimators["gae"], {"lam": lam}, oracle, episodes, columns
            )
            drawn = report(subject, sizes=(64,)).batches[64]
            found[critic, lam] = drawn["cosine"]
    assert found["zero", 0.8] > max(found["zero", 0.0], found["zero", 1.0]) + 0.02
    assert found["exact", 0.0] > found["exact", 0.8] > found["exact", 1.0]
    assert torch.tensor(list(found.values())).max() == pytest.approx(0.95, abs=0.05)
