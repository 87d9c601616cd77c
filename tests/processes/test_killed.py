"""A run that is killed, and killed again, ends as one that never was."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import torch
from safetensors.torch import load_file

from helpers.runs import lines, untimed


def test_killed_at_random_moments_and_resumed_the_metrics_are_the_same(words, tmp_path):
    """SIGKILL, ten times; then on to the end: as a run that was never interrupted."""
    words = [*words, "train.steps=60", "eval.every=7", "checkpoint.every=2", "loggers=csv",
             "kl.controller=adaptive", "actor.lr_schedule=cosine"]  # fmt: skip
    script = textwrap.dedent("""
        import sys, torch
        import rlzoo
        from rlzoo.train.start import resume
        torch.set_num_threads(1)
        mode, path, *words = sys.argv[1:]
        print("ready", flush=True)
        if mode == "run":
            rlzoo.run("ppo_gae", [*words, f"run.dir={path}"])
        else:
            resume(path)
    """)

    def start(mode, path):
        command = [sys.executable, "-c", script, mode, str(path), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole = start("run", tmp_path / "whole")
    assert whole.wait(timeout=120) == 0, whole.stderr.read()
    generator = torch.Generator().manual_seed(0)
    killed = 0
    mode = "run"
    while killed < 10:
        process = start(mode, tmp_path / "cut")
        process.stdout.readline()
        time.sleep(0.1 + 1.2 * float(torch.rand((), generator=generator)))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
        if (tmp_path / "cut" / "summary.json").exists():
            break
        if (tmp_path / "cut" / "recipe.yaml").exists():
            mode = "resume"
    if not (tmp_path / "cut" / "summary.json").exists():
        last = start(mode, tmp_path / "cut")
        assert last.wait(timeout=120) == 0, last.stderr.read()
    assert killed >= 3
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
    assert lines(tmp_path / "cut", "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")
    a, b = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("cut", "whole"))
    assert all(torch.equal(a[k], b[k]) for k in b)
