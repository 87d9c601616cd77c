"""One run on two nodes: `python tests/benchmarks/ranks_on_ray.py [FOLDER]`.

By Ray's TorchTrainer (docs/examples/train_on_ray.py) on a cluster of this machine, a head and two
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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from executors_alike import UNTOLD, in_a_folder, until
from on_ray import cluster_of

WORDS = ["recipe=ppo_gae", "model=nano", "device=cpu", "rollout.prompts=4", "rollout.samples=4",
         "train.steps=6", "eval.samples=16", "checkpoint.every=1", "run.threads=1"]  # fmt: skip
LAUNCHER = Path(__file__).parents[2] / "docs" / "examples" / "train_on_ray.py"


def start(folder: Path, code: list[str], *more: str) -> list[str]:
    return [sys.executable, *code, *WORDS, *more, f"run.dir={folder}"]


def by_ray(folder: Path, address: str, *more: str) -> subprocess.Popen:
    out = open(f"{folder}.log", "w")
    return subprocess.Popen(start(folder, [str(LAUNCHER), "2"], *more), stdout=out, stderr=out,
                            env=os.environ | {"RAY_ADDRESS": address})  # fmt: skip


def by_torchrun(folder: Path, *more: str) -> list[subprocess.Popen]:
    """As on two nodes: a launcher each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = open(f"{folder}.log", "w")
    return [
        subprocess.Popen(
            start(folder, ["-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", f"{node}",
                           "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port",
                           f"{port}", "-m", "rlzoo", "run"], *more),
            stdout=out, stderr=out,
        )  # fmt: skip
        for node in range(2)
    ]


def ranks(cluster: str) -> list[int]:
    """The processes that Ray Train started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"RayTrainWorker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def metrics(folder: Path) -> list[dict]:
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(UNTOLD)}
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


def gap(one: list[dict], other: list[dict]) -> float:
    """The largest difference of any number."""
    assert [line["step"] for line in one] == [line["step"] for line in other]
    return max(
        abs(a[k] - b[k])
        for a, b in zip(one, other, strict=True)
        for k in a
        if isinstance(a[k], int | float) and k in b
    )


def try_all(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    assert subprocess.run(start(place / "one", ["-m", "rlzoo", "run"]), check=True)
    one = metrics(place / "one")
    for strategy in ("replicate", "shard"):
        word = f"parallel.strategy={strategy}"
        name = f"torchrun-{strategy}"
        for process in by_torchrun(place / name, word):
            assert process.wait(600) == 0, (place / f"{name}.log").read_text()
        print(f"{name}: {gap(one, metrics(place / name)):.1e}", flush=True)
    with cluster_of(2) as cluster:
        for strategy in ("replicate", "shard"):
            for killed in (False, True):
                name = f"ray-{strategy}" + "-killed" * killed
                began = time.monotonic()
                process = by_ray(place / name, cluster.address, f"parallel.strategy={strategy}")
                if killed:
                    until(lambda: any((place / name).glob("checkpoints/step-*2/manifest.json"))
                          or process.poll() is not None)  # fmt: skip
                    os.kill(ranks(cluster.address)[-1], signal.SIGKILL)
                said = (place / f"{name}.log").read_text
                assert process.wait(600) == 0, said()
                print(f"{name}: {gap(one, metrics(place / name)):.1e}, "
                      f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    in_a_folder(try_all)
