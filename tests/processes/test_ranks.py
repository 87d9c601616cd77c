"""Several processes make the run that one makes. One test starts them by torchrun."""

import os
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

from helpers.forks import ranks
from helpers.launch import WORDS, launch
from helpers.runs import assert_same_metrics, lines
from rlzoo.accel.ranks import Ranks
from rlzoo.cli import main
from rlzoo.mdp.batch import Batch, concatenate


@pytest.mark.landing
def test_two_processes_make_the_run_of_one(tmp_path):
    """In float64, eight steps: the same tokens, the same metrics, whatever is coupled. Five
    prompts are no multiple of two processes."""
    words = ["recipe=ppo_gae", *WORDS, "train.steps=8", "train.minibatches=2", "run.samples=20",
             "model.dtype=float64", "whiten=group", "policy_loss=tpo", "kl.controller=adaptive",
             "kl.place=loss", "kl=k2", "train.microbatch=3", "critic.epochs=2",
             "run.save_batches=1"]  # fmt: skip
    assert main(["run", *words, f"run.dir={tmp_path / '1'}"]) == 0
    status, said = ranks(tmp_path, *[["run", *words, f"run.dir={tmp_path / '2'}"]] * 2)
    assert status == 0, said
    assert lines(tmp_path / "1", "samples.jsonl") == lines(tmp_path / "2", "samples.jsonl")
    assert_same_metrics(lines(tmp_path / "1"), lines(tmp_path / "2"), 1e-6)
    last = "batches/step-00000008.safetensors"
    mine, theirs = load_file(tmp_path / "1" / last), load_file(tmp_path / "2" / last)
    for name in ("log_probs", "entropy"):  # after the update
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-6, atol=1e-8)


@pytest.mark.landing
def test_a_checkpoint_of_two_goes_on_as_one_and_one_of_one_as_two(tmp_path):
    words = ["run", "recipe=grpo", *WORDS, "model.dtype=float64", "rollout.staleness=2"]
    whole = tmp_path / "whole"

    def go(processes, *words):
        status, said = ranks(tmp_path, *[words] * processes) if processes > 1 else (main(words), "")
        assert status == 0, said

    go(1, *words, "train.steps=6", f"run.dir={whole}")
    for first, then in ((2, 1), (1, 2)):
        folder = tmp_path / f"{first}{then}"
        go(first, *words, "train.steps=4", f"run.dir={folder}")
        (folder / "summary.json").unlink()  # as if it had been cut off
        recipe = folder / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("steps: 4", "steps: 6"))
        go(then, "resume", str(folder))
        # The evaluation at the first run's end is one more.
        rest = [x for x in lines(folder) if "eval/score" not in x]
        assert_same_metrics([x for x in lines(whole) if "eval/score" not in x], rest, 1e-6)


@pytest.mark.landing
def test_a_rank_that_dies_takes_the_others_along_within_seconds(tmp_path):
    folder = tmp_path / "run"
    run = launch(2, "run", "recipe=ppo_gae", *WORDS, "train.steps=5000", f"run.dir={folder}")
    began = time.time()
    # A whole checkpoint: on a busy machine its folder is there long before its manifest.
    while not list(folder.glob("checkpoints/step-*/manifest.json")) and time.time() - began < 300:
        time.sleep(0.2)
    found = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True)
    children = [int(pid) for pid in found.stdout.split()]
    assert len(children) == 2
    os.kill(children[1], signal.SIGKILL)
    began = time.time()
    out, _ = run.communicate(timeout=60)
    assert time.time() - began < 30
    assert run.returncode != 0
    assert "rlzoo resume RUN" in out or "SIGTERM" in out or "Signal 9" in out, out
    assert list(folder.glob("checkpoints/step-*/manifest.json"))


def test_ranks_with_different_words_are_refused(tmp_path):
    words = ["run", "recipe=grpo", *WORDS, "train.steps=1", f"run.dir={tmp_path / 'run'}"]
    status, said = ranks(tmp_path, [*words, "seed=0"], [*words, "seed=1"])
    assert status != 0
    assert "rank 1 has a different recipe from rank 0" in said
    assert not (tmp_path / "run").exists()


def test_shares_are_whole_and_apart():
    for count in (1, 2, 3, 5):
        ranks = [Ranks(i, count) for i in range(count)]
        assert [x for r in ranks for x in r.block(7)] == list(range(7))
        assert sorted(x for r in ranks for x in range(7)[r.index :: r.count]) == list(range(7))


def test_joining_pads_prompts_on_the_left_and_responses_on_the_right():
    def part(rows, prompt, response):
        batch = Batch(torch.ones(rows, response))
        batch.add("prompts", [f"{prompt}"] * rows)
        batch.add("prompt_ids", torch.full((rows, prompt), 7))
        batch.add("prompt_mask", torch.ones(rows, prompt))
        batch.add("response_ids", torch.full((rows, response), 8))
        batch.add("old_log_probs", torch.full((rows, response), -0.5))
        batch.add("score_components", torch.ones(rows, 2))
        batch.add("score_weights", torch.ones(2))
        batch.add("terminated", torch.ones(rows, dtype=torch.bool))
        return batch

    parts = [part(1, 3, 2), part(2, 2, 4)]
    whole = concatenate([dict(p) for p in parts], 9, torch.device("cpu"))
    assert whole["prompt_ids"].tolist() == [[7, 7, 7], [9, 7, 7], [9, 7, 7]]
    assert whole["response_ids"].tolist() == [[8, 8, 9, 9], [8] * 4, [8] * 4]
    assert whole["response_mask"].sum(1).tolist() == [2, 4, 4]
    assert whole["old_log_probs"].sum(1).tolist() == [-1, -2, -2]
    assert whole["prompts"] == ["3", "2", "2"]
    assert (whole["score_components"].shape, whole["score_weights"].shape) == ((3, 2), (2,))


@pytest.mark.parametrize("which", [[0, 1], [1]])
def test_a_signal_to_any_rank_stops_all_with_a_checkpoint(which, tmp_path):
    """torchrun sends it to each, `kill` to one."""
    folder = tmp_path / "run"
    words = ["run", "recipe=grpo", *WORDS, "train.steps=5000", "checkpoint.every=0",
             f"run.dir={folder}"]  # fmt: skip

    def send(started):
        began = time.time()
        while time.time() - began < 100 and len(stepped(folder)) < 3:
            time.sleep(0.1)
        for i in which:
            os.kill(started[i].pid, signal.SIGTERM)

    status, said = ranks(tmp_path, words, words, meanwhile=send)
    assert status == 128 + signal.SIGTERM, said
    assert "continues the run" in said
    steps = [line["step"] for line in lines(folder)]
    assert [p.name for p in (folder / "checkpoints").iterdir()] == [f"step-{steps[-1]:08d}"]


def stepped(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []
