"""One update: its mini-batches, and what moves."""

import math
from collections import defaultdict

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, state_of, weights_after, world_of


def test_mini_batches_keep_groups_whole_for_a_loss_that_looks_at_them(zoo, words):
    from rlzoo.mdp.noise import generator
    from rlzoo.step.update import _minibatches

    for loss, whole in (("tpo", True), ("ppo_clip", False)):
        world = world_of(zoo, [*words, f"policy_loss={loss}"], "grpo")
        batch = rolled(world)
        parts = _minibatches(world.plan, batch, 2, generator(0, "x"))
        assert sorted(torch.cat(parts).tolist()) == list(range(batch.rows))
        homes = [set(batch["group_ids"][rows].tolist()) for rows in parts]
        assert (sum(map(len, homes)) == 4) == whole


def test_an_update_moves_actor_and_critic(zoo, words):
    words = [*words, *LETTERS]
    before = state_of(world_of(zoo, words))
    after, metrics = weights_after(zoo, words, "ppo_gae")
    assert any(not torch.equal(before[k], after[k]) for k in before)
    assert after["critic.head.weight"].abs().sum() > 0
    assert metrics["actor/grad_norm"] > 0


def test_a_ratio_is_the_policy_over_the_old_one():
    from rlzoo.step.update import _note_policy

    old = torch.tensor([[-1.0, -2.0]])
    columns = {"old_log_probs": old, "log_probs": old + math.log(2), "entropy": 0 * old}
    sums = defaultdict(list)
    _note_policy(sums, columns, torch.tensor([[0.25, 0.75]]), torch.tensor(0.0), {})
    found = {name: float(sum(terms)) for name, terms in sums.items()}
    assert found["actor/ratio_mean"] == pytest.approx(2)
    assert found["actor/ppo_kl"] == pytest.approx(-math.log(2))
