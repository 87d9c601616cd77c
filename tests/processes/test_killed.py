"""A run that is killed, and killed again, ends as one that never was."""

import time

import pytest
import torch
from safetensors.torch import load_file

from helpers.forks import start
from helpers.runs import lines, untimed
from rlzoo.cli import main


@pytest.mark.landing
def test_killed_at_random_moments_and_resumed_the_metrics_are_the_same(words, tmp_path):
    """SIGKILL, ten times; then on to the end: as a run that was never interrupted."""
    words = [
        "run", "recipe=ppo_gae", *words, "train.steps=40", "eval.every=7", "checkpoint.every=2",
        "loggers=csv", "kl.controller=adaptive", "actor.lr_schedule=cosine",
        "rollout.staleness=2",
    ]  # fmt: skip
    assert main([*words, f"run.dir={tmp_path / 'whole'}"]) == 0
    generator = torch.Generator().manual_seed(0)
    killed = 0
    cut = [*words, f"run.dir={tmp_path / 'cut'}"]
    while killed < 10:
        process = start(main, cut)
        time.sleep(0.1 + 0.9 * float(torch.rand((), generator=generator)))
        process.kill()
        process.join()
        killed += 1
        if (tmp_path / "cut" / "summary.json").exists():
            break
        if (tmp_path / "cut" / "recipe.yaml").exists():
            cut = ["resume", str(tmp_path / "cut")]
    if not (tmp_path / "cut" / "summary.json").exists():
        assert main(cut) == 0
    assert killed >= 3
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
    assert lines(tmp_path / "cut", "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")
    a, b = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("cut", "whole"))
    assert all(torch.equal(a[k], b[k]) for k in b)
