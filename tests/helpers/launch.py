"""Runs started as torchrun starts them."""

import os
import subprocess
import sys

WORDS = ["model=nano", "task=key_door", "eval.samples=16", "rollout.prompts=5", "rollout.samples=4",
         "actor.lr=1e-3", "checkpoint.every=2", "run.threads=1", "device=cpu"]  # fmt: skip


def launch(processes, *words):
    """The process of torchrun, which starts `rlzoo WORDS` so many times."""
    code = [sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={processes}", "-m", "rlzoo"]  # fmt: skip
    return subprocess.Popen(
        [*code, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
