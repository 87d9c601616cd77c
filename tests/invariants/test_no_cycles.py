"""A training step leaves nothing to Python's collector of cycles: the command line rarely runs it,
and tensors in a cycle would stay in memory."""

import gc

import pytest

import rlzoo


@pytest.mark.parametrize("recipe", ["grpo", "ppo_gae"])
def test_a_step_leaves_no_cycles(recipe):
    trainer = rlzoo.open_recipe(recipe, ["device=cpu", "model=nano", "rollout.prompts=4"])
    trainer.step()
    gc.collect()
    gc.disable()
    try:
        trainer.step()
        assert gc.collect() == 0
    finally:
        gc.enable()
