"""Weights in float32 under bfloat16: small steps count, and the first ratio is one."""

import pytest
import torch

from helpers.architectures import EACH, LORA
from helpers.rewards_for_tests import LETTERS
from helpers.worlds import state_of, step, weights_after, world_of


def changed(before, after):
    """The share of entries that differ, over floating tensors."""
    pairs = [(x, after[k]) for k, x in before.items() if x.is_floating_point()]
    return sum((x != y).sum().item() for x, y in pairs) / sum(x.numel() for x, _ in pairs)


@EACH
def test_a_tiny_learning_rate_changes_weights_under_bfloat16_autocast(make, name):
    world = make(name, "model.autocast=bfloat16", "actor.lr=1e-6", "train.minibatches=1",
                 recipe="grpo")  # fmt: skip
    before = state_of(world)
    assert {x.dtype for x in before.values()} == {torch.float32}
    step(world)
    assert changed(before, state_of(world)) > 0.5


def test_weights_below_float32_lose_it_and_the_plan_says_so(make, zoo):
    words = ["model.dtype=bfloat16", "model.autocast=none", "actor.lr=1e-6", "kl.place=none"]
    world = make("llama", *words, recipe="grpo")
    assert any("model.dtype" in text for text in world.plan.warnings)
    before = state_of(world)
    step(world)
    assert changed(before, state_of(world)) < 0.01
    world = make("llama", *words, *LORA, recipe="grpo")
    assert not any("model.dtype" in text for text in world.plan.warnings)
    before = {k: x for k, x in state_of(world).items() if "lora_B" in k}
    assert {x.dtype for x in before.values()} == {torch.float32}
    step(world)
    assert changed(before, state_of(world)) > 0.5
    assert not any("model.dtype" in text for text in make("llama").plan.warnings)


def test_a_tiny_learning_rate_still_changes_weights_under_autocast(zoo, words):
    words = [*words, *LETTERS, "model.autocast=bfloat16", "train.minibatches=1"]
    before = state_of(world_of(zoo, words))
    after, _ = weights_after(zoo, [*words, "actor.lr=1e-6"], "ppo_gae")
    assert any(not torch.equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("autocast", ["none", "bfloat16"])
def test_the_first_ratio_is_one(zoo, words, autocast):
    words = [*words, "train.minibatches=1", f"model.autocast={autocast}"]
    _, metrics = weights_after(zoo, words, "ppo_gae")
    assert metrics["actor/ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["actor/ppo_kl"] == pytest.approx(0, abs=1e-5)
    assert metrics["actor/pg_clipfrac"] == 0
