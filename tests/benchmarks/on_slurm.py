"""`--on slurm` makes the runs of `--on local`: `python tests/benchmarks/on_slurm.py [FOLDER]`.

By submitit's local executor (`pip install 'rlzoo-llm[slurm]'`): two recipes and two seeds, once by
each executor, and once more by Slurm's with a job killed in the middle. Every line of metrics.jsonl
must be equal, figures of time apart. About a minute of CPU time.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from rlzoo.cli import main

UNTOLD = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
WORDS = ["recipe=ppo_gae,grpo", "seed=0,1", "model=nano", "device=cpu", "rollout.prompts=4",
         "rollout.samples=4", "train.steps=6", "eval.samples=16", "checkpoint.every=1"]  # fmt: skip


def sweep(folder: Path, *on: str) -> dict[str, list[dict]]:
    """Each run's metrics, by its name."""
    shutil.rmtree(folder, ignore_errors=True)
    assert main(["sweep", *WORDS, "--dir", str(folder), "--jobs", "2", "--on", *on]) == 0
    return {
        path.parent.name: [
            {k: v for k, v in json.loads(line).items() if not k.startswith(UNTOLD)}
            for line in path.read_text().splitlines()
        ]
        for path in sorted(folder.glob("*/metrics.jsonl"))
    }


def kill_one(folder: Path, killed: list[int]) -> None:
    """Once a run has two checkpoints, the process at work in it is gone."""
    while not killed:
        for run in folder.glob("*--seed*"):
            if len(list(run.glob("checkpoints/*/manifest.json"))) >= 2 and not killed:
                for process in Path("/proc").glob("[0-9]*"):
                    if holds(process, run):
                        os.kill(int(process.name), signal.SIGKILL)
                        killed.append(int(process.name))
        time.sleep(0.05)


def holds(process: Path, run: Path) -> bool:
    """Whether a process has a file of the run's folder open: it holds its lock."""
    if int(process.name) == os.getpid():
        return False
    try:
        return any(str(run) in os.readlink(fd) for fd in (process / "fd").iterdir())
    except OSError:
        return False


def try_all(place: Path) -> None:
    local = sweep(place / "local", "local")
    assert len(local) == 4, local.keys()
    assert sweep(place / "slurm", "slurm", "cluster=local") == local
    killed: list[int] = []
    thread = threading.Thread(target=kill_one, args=(place / "killed", killed), daemon=True)
    thread.start()
    assert sweep(place / "killed", "slurm", "cluster=local") == local
    assert killed, "no job was killed"
    lines = sum(map(len, local.values()))
    print(f"4 runs, {lines} lines of metrics: the same by both executors; also with a job killed")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try_all(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            try_all(Path(folder))
