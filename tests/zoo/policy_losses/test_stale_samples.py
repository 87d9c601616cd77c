"""Losses against old samples do their work where samples are old: on fresh ones they are idle."""

import pytest

import rlzoo

SMALL = ["rollout.prompts=8", "rollout.samples=4", "eval.every=0", "device=cpu", "train.steps=5",
         "actor.lr=3e-3", "train.minibatches=1"]  # fmt: skip


def left_out(zoo, recipe, name, staleness, *words):
    """The share of tokens that the loss silenced, in the last of five steps."""
    how = [f"rollout.staleness={staleness}", *SMALL, *words]
    trainer = rlzoo.open_recipe(recipe, how, zoo=zoo)
    for _ in range(5):
        metrics = trainer.step()[1]
    return metrics[name]


CASES = {
    "opsm": ("deepseek_v3_2", "actor/pg_clipfrac_sequence", "model=blind", "task=marks"),
    "turn_clip": ("turn_clip", "actor/pg_clipfrac", "rollout.old_log_probs=sampled"),
}  # fmt: skip


@pytest.mark.parametrize("loss", CASES)
def test_it_leaves_out_old_samples_and_no_fresh_ones(zoo, loss):
    recipe, name, *words = CASES[loss]
    assert left_out(zoo, recipe, name, 4, *words) > 0.01
    assert left_out(zoo, recipe, name, 0, *words) == 0
