"""`--on ray` makes the runs of `--on local`: `python tests/benchmarks/on_ray.py [FOLDER]`.

On a Ray cluster of this machine's loopback address (`pip install 'rlzoo-llm[ray]'`), a head and two
nodes: two recipes and four seeds, with a node killed in the middle, then joined by another. Every
line of metrics.jsonl must be equal, figures of time apart. About three minutes of CPU time.
"""

import os
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

from executors_alike import half_done, in_a_folder, sweep, until
from ray.cluster_utils import Cluster

SMALL = {"object_store_memory": 80_000_000}


@contextmanager
def cluster_of(nodes: int):
    """A head that does no run, and nodes that do one each at a time."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets' paths must be short
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": folder, **SMALL}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.nodes = [cluster.add_node(num_cpus=1, **SMALL) for _ in range(nodes)]
        yield cluster
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def kill_one(cluster: Cluster, folder: Path, sweeping: Future) -> list[str]:
    """Once both nodes are in the middle of a run, one of them is gone; later another comes."""
    until(lambda: len(half_done(folder)) >= 2 or sweeping.done())
    killed = sorted(run.name for run in half_done(folder))
    cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
    until(lambda: len(list(folder.glob("*/summary.json"))) >= 3 or sweeping.done())
    cluster.nodes.append(cluster.add_node(num_cpus=1, **SMALL))
    return killed


def try_all(place: Path) -> None:
    local = sweep(place / "local", 4, "local")
    with cluster_of(2) as cluster, ThreadPoolExecutor(1) as thread:
        sweeping = thread.submit(sweep, place / "ray", 4, f"ray:{cluster.address}")
        killed = kill_one(cluster, place / "ray", sweeping)
        assert sweeping.result() == local
    assert killed, "no run was under way"
    lines = sum(map(len, local.values()))
    print(f"8 runs, {lines} lines of metrics: the same by both executors, with a node killed while "
          f"{' and '.join(killed)} were under way")  # fmt: skip


if __name__ == "__main__":
    in_a_folder(try_all)
