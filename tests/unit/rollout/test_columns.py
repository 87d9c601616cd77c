"""Columns of a rollout: numbers without a history, zero off the mask, the end bootstrapped."""

import torch

from helpers.worlds import rolled, world_of


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
        torch.nn.init.ones_(world.critic.head.bias)
        batch = rolled(world)
        expected = batch["truncated"].float() if mode == "bootstrap" else torch.zeros(batch.rows)
        torch.testing.assert_close(batch["bootstrap_values"], expected)
