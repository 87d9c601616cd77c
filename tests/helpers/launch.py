"""Runs started as a shell or torchrun starts them, and their metrics compared."""

import os
import subprocess
import sys

WORDS = ["model=nano", "task=key_door", "eval.samples=16", "rollout.prompts=5", "rollout.samples=4",
         "actor.lr=1e-3", "checkpoint.every=2", "run.threads=1", "device=cpu"]  # fmt: skip


def launch(processes, *words, wait=True):
    """`rlzoo WORDS` on so many processes."""
    code = [sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={processes}", "-m", "rlzoo"]  # fmt: skip
    code = [*code, *words] if processes > 1 else [sys.executable, "-m", "rlzoo", *words]
    started = subprocess.Popen(
        code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    if not wait:
        return started
    out, _ = started.communicate(timeout=240)
    return started.returncode, out
