"""Columns of a rollout: numbers without a history, zero off the mask, the end bootstrapped."""

import pytest
import torch

from helpers.worlds import rolled, world_of
from rlzoo import load_zoo


def test_targets_carry_no_gradient(zoo, words):
    batch = rolled(world_of(zoo, words))
    for name, column in batch.items():
        if isinstance(column, torch.Tensor):
            assert not column.requires_grad, name


def test_every_column_is_zero_off_the_mask(zoo, words):
    batch = rolled(world_of(zoo, [*words, "task=key_door", "rollout.max_new_tokens=8"]))
    off = batch["response_mask"] == 0
    assert off.any()
    for name in ("old_log_probs", "values", "rewards", "advantages", "returns", "noise", "scores"):
        assert (batch[name][off] == 0).all(), name


def test_truncation_switch_sets_the_bootstrap(zoo, words):
    words = [*words, "rollout.max_new_tokens=2", "critic.lr=0.1"]
    for mode in ("zero", "bootstrap"):
        world = world_of(zoo, [*words, f"rollout.truncation={mode}"])
        torch.nn.init.ones_(world.engine.critic.head.bias)
        batch = rolled(world)
        expected = batch["truncated"].float() if mode == "bootstrap" else torch.zeros(batch.rows)
        torch.testing.assert_close(batch["bootstrap_values"], expected)


OPEN = """
from rlzoo import hookimpl

def open_ones(rewards, old_entropy{more}, response_mask):
    "A_t = r_t + H(s_t).  Source: made up."
    return rewards + old_entropy

@hookimpl
def register_estimators(register):
    register(open_ones)
"""


@pytest.mark.parametrize("more", ["", ", sum_pi_squared", ", values, bootstrap_values"])
def test_the_entropy_at_rollout_is_there_for_whoever_asks(words, tmp_path, more):
    """By its definition, over the whole vocabulary; in the same pass as others, or in one that the
    update makes anyway."""
    (tmp_path / "mine.py").write_text(OPEN.format(more=more))
    zoo = load_zoo([tmp_path / "mine.py"])
    words = [*words, "estimator=open_ones", "rollout.temperature=0.7"]
    world = world_of(zoo, words, "ppo_gae" if "values" in more else "grpo")
    batch = rolled(world)
    log_pi = world.policy.log_prob_stats(batch, want=("log_pi",))["log_pi"]
    by_hand = -(log_pi.exp() * log_pi).sum(-1) * batch["response_mask"]
    torch.testing.assert_close(batch["old_entropy"], by_hand, atol=1e-5, rtol=1e-5)
    assert batch["old_entropy"].max() > 0.1
    assert (batch["old_entropy"][batch["response_mask"] == 0] == 0).all()


def test_nobody_pays_for_the_entropy_without_asking(zoo, words):
    assert "old_entropy" not in rolled(world_of(zoo, words, "grpo"))
