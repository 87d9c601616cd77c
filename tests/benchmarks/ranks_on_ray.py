"""One run on two nodes: `python tests/benchmarks/ranks_on_ray.py [FOLDER]`.

By Ray's TorchTrainer (docs/studies/train_on_ray.py) on a cluster of this machine, a head and two
nodes, and by two torchruns: replicated and in shards; by Ray with a rank killed in the middle. Then
metrics are compared with those of one process. About three minutes of CPU time.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from executors_alike import UNTOLD, in_a_folder, until
from on_ray import cluster_of

WORDS = ["recipe=ppo_gae", "model=nano", "device=cpu", "rollout.prompts=4", "rollout.samples=4",
         "train.steps=6", "eval.samples=16", "checkpoint.every=1", "run.threads=1"]  # fmt: skip
LAUNCHER = Path(__file__).parents[2] / "docs" / "studies" / "train_on_ray.py"


def start(code: list[str], folder: Path, *words: str) -> subprocess.Popen:
    """`python CODE WORDS`, a run in that folder; what it says lies beside."""
    with open(f"{folder}.log", "a") as log:
        command = [sys.executable, *code, *WORDS, *words, f"run.dir={folder}"]
        return subprocess.Popen(command, stdout=log, stderr=log)


def by_torchrun(folder: Path, *words: str) -> list[subprocess.Popen]:
    """As on two nodes: a launcher each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = ["--master-addr", "127.0.0.1", "--master-port", f"{free.getsockname()[1]}"]
    code = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *where]
    rlzoo = ["-m", "rlzoo", "run"]
    return [start([*code, "--node-rank", f"{i}", *rlzoo], folder, *words) for i in range(2)]


def kill_a_rank(folder: Path, process: subprocess.Popen) -> None:
    """After the second step."""
    until(lambda: process.poll() is not None
          or (folder / "checkpoints" / "step-00000002" / "manifest.json").exists())  # fmt: skip
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ends just now
            if b"RayTrainWorker" in one.read_bytes():
                os.kill(int(one.parent.name), signal.SIGKILL)
                return
    raise AssertionError("no rank was there to be killed")


def metrics(folder: Path) -> list[dict]:
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(UNTOLD)}
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


def compare(alone: Path, folder: Path, began: float) -> None:
    """The largest difference of any number."""
    one, other = metrics(alone), metrics(folder)
    assert [line["step"] for line in one] == [line["step"] for line in other]
    gap = max(
        abs(a[k] - b[k])
        for a, b in zip(one, other, strict=True)
        for k in a
        if isinstance(a[k], int | float) and k in b
    )
    print(f"{folder.name}: {gap:.1e}, {time.monotonic() - began:.0f} s", flush=True)


def finish(process: subprocess.Popen, folder: Path) -> None:
    assert process.wait(900) == 0, Path(f"{folder}.log").read_text()


def try_all(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    alone = place / "one"
    finish(start(["-m", "rlzoo", "run"], alone), alone)
    for strategy in ("replicate", "shard"):
        began, folder = time.monotonic(), place / f"torchrun-{strategy}"
        for process in by_torchrun(folder, f"parallel.strategy={strategy}"):
            finish(process, folder)
        compare(alone, folder, began)
    with cluster_of(2) as cluster:
        os.environ["RAY_ADDRESS"] = cluster.address
        for name in ("ray-replicate", "ray-shard", "ray-replicate-killed", "ray-shard-killed"):
            began, folder = time.monotonic(), place / name
            strategy = f"parallel.strategy={name.split('-')[1]}"
            process = start([str(LAUNCHER), "2"], folder, strategy)
            if name.endswith("killed"):
                kill_a_rank(folder, process)
            finish(process, folder)
            compare(alone, folder, began)


if __name__ == "__main__":
    in_a_folder(try_all)
