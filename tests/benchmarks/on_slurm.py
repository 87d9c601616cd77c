"""`--on slurm` makes the runs of `--on local`: `python tests/benchmarks/on_slurm.py [FOLDER]`.

By submitit's local executor (`pip install 'rlzoo-llm[slurm]'`): two recipes and two seeds, once by
each executor, and once more by Slurm's with a job killed in the middle. Every line of metrics.jsonl
must be equal, figures of time apart. About a minute of CPU time.
"""

import os
import signal
import threading
import time
from pathlib import Path

from executors_alike import half_done, in_a_folder, sweep


def kill_one(folder: Path, killed: list[int]) -> None:
    """Once a run has two checkpoints, the process at work in it is gone."""
    while not killed:
        for run in half_done(folder):
            for process in Path("/proc").glob("[0-9]*"):
                if not killed and holds(process, run):
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
    local = sweep(place / "local", 2, "local")
    assert sweep(place / "slurm", 2, "slurm", "cluster=local") == local
    killed: list[int] = []
    thread = threading.Thread(target=kill_one, args=(place / "killed", killed), daemon=True)
    thread.start()
    assert sweep(place / "killed", 2, "slurm", "cluster=local") == local
    assert killed, "no job was killed"
    lines = sum(map(len, local.values()))
    print(f"4 runs, {lines} lines of metrics: the same by both executors; also with a job killed")


if __name__ == "__main__":
    in_a_folder(try_all)
