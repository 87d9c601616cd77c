"""Runs started as torchrun starts them."""

import os
import subprocess
import sys

WORDS = ["model=nano", "task=key_door", "eval.samples=16", "rollout.prompts=5", "rollout.samples=4",
         "actor.lr=1e-3", "checkpoint.every=2", "run.threads=1", "device=cpu"]  # fmt: skip


def launch(processes, *words, wait=True):
    """`rlzoo WORDS` on so many processes; (exit status, output), or the launcher's own process."""
    code = [sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={processes}", "-m", "rlzoo"]  # fmt: skip
    started = subprocess.Popen(
        [*code, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    if not wait:
        return started
    out, _ = started.communicate(timeout=240)
    return started.returncode, out
