"""Weights in shards over two processes make the run that one process makes."""

import pytest
import torch
from safetensors.torch import load_file
from test_ranks import WORDS, assert_same_metrics, launch, lines

# Twenty rows in passes of three are seven: one process of two makes a pass less.
OWN = ["recipe=ppo_gae", *WORDS, "model.dtype=float64", "train.microbatch=3", "run.samples=20",
       "kl.place=loss", "kl=full", "policy_loss=tpo", "checkpoint.best=true"]  # fmt: skip
SHARD = "parallel.strategy=shard"


def test_shards_make_the_same_run_and_checkpoints_fit_either_way(tmp_path):
    """Policy, critic and reference in shards, in float64: three steps sharded and three that go on
    without are the six steps of one process, and what is saved loads whole."""
    one, two = tmp_path / "one", tmp_path / "two"
    status, out = launch(1, "run", *OWN, "train.steps=4", f"run.dir={one}")
    assert status == 0, out
    status, out = launch(2, "run", *OWN, SHARD, "train.steps=2", f"run.dir={two}")
    assert status == 0, out
    (two / "summary.json").unlink()  # as if it had been cut off
    recipe = two / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("steps: 2", "steps: 4"))
