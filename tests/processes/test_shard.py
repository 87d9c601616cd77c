"""Weights in shards over two processes make the run that one process makes."""

import pytest
import torch
from safetensors.torch import load_file

from helpers.forks import ranks
from helpers.launch import WORDS
from helpers.runs import assert_same_metrics, lines
from rlzoo import resume, run

# Twenty rows in passes of three are seven: one process of two makes a pass less. Full KL needs the
# heads of policy and reference together; TPO couples the rows of a mini-batch.
RUN = [*WORDS, "model.dtype=float64", "train.microbatch=3",
       "kl=full", "policy_loss=tpo", "checkpoint.best=true", "run.save_batches=3"]  # fmt: skip


def steps(folder):
    """Without evaluations: a run that goes on evaluates once more, where it had ended."""
    return [line for line in lines(folder) if "eval/score" not in line]


def cut_off(folder, last):
    """A finished run as if it had been ended by force, to go on to step `last`."""
    (folder / "summary.json").unlink()
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(f"steps: {last - 1}", f"steps: {last}"))


@pytest.mark.landing
def test_shards_make_the_same_run_and_checkpoints_fit_one_process_and_two(tmp_path):
    """A step by one process, one by two with shards, one by one again, as three by one."""
    one, two = tmp_path / "one", tmp_path / "two"
    run("ppo_gae", [*RUN, "train.steps=3", f"run.dir={one}"])
    run("ppo_gae", [*RUN, "parallel.strategy=shard", "train.steps=1", f"run.dir={two}"])
    cut_off(two, 2)
    status, said = ranks(tmp_path, *[["resume", str(two)]] * 2)
    assert status == 0, said
    assert "model.safetensors" in {path.name for path in (two / "model").iterdir()}
    cut_off(two, 3)
    resume(two)
    assert_same_metrics(steps(one), steps(two), 1e-9)
    assert len(list((one / "batches").glob("*.safetensors"))) == 3
    for name in ("model", "checkpoints/step-00000003", "batches"):
        for path in (one / name).glob("*.safetensors"):
            mine, theirs = load_file(path), load_file(two / name / path.name)
            assert mine.keys() == theirs.keys()
            for key, x in mine.items():
                torch.testing.assert_close(theirs[key], x, rtol=1e-7, atol=1e-9)
    config = (two / "model" / "config.json").read_text()
    assert config == (one / "model" / "config.json").read_text()


@pytest.mark.landing
def test_a_rank_whose_rows_are_all_left_out_reduces_with_the_other(tmp_path):
    """A row to a pass, and of truncated ones no token counts."""
    words = [*WORDS, "model=tiny", "task=addition", "rollout.max_new_tokens=3", "train.steps=2",
             "rollout.truncation=drop", "train.microbatch=1", "train.minibatches=2",
             "train.skip_no_signal=false", "model.dtype=float64"]  # fmt: skip
    run("grpo", [*words, f"run.dir={tmp_path / 'one'}"])
    two = ["run", "recipe=grpo", *words, "parallel.strategy=shard", f"run.dir={tmp_path / 'two'}"]
    status, said = ranks(tmp_path, *[two] * 2)
    assert status == 0, said
    cut = [x["response/truncated"] for x in steps(tmp_path / "one") if x["step"]]
    assert all(0 < share < 1 for share in cut), cut
    assert_same_metrics(steps(tmp_path / "one"), steps(tmp_path / "two"), 1e-9)
