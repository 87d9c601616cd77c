"""`--on ray` makes the runs of `--on local`: `python tests/benchmarks/on_ray.py [FOLDER]`.

On a Ray cluster of this machine's loopback address (`pip install 'rlzoo-llm[ray]'`), a head and two
nodes: two recipes and four seeds, with a node killed in the middle, then joined by another; once in
a folder that the nodes share, once with --store, each node on a disk of its own, and that of the
killed one deleted. Every line of metrics.jsonl must be equal, figures of time apart. About three
minutes of CPU time.
"""

import os
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

from executors_alike import Metrics, half_done, in_a_folder, sweep, until
from ray.cluster_utils import Cluster

SMALL = {"object_store_memory": 80_000_000}


class Nodes(Cluster):
    """A head that does no run, and nodes with a disk of their own that do one each at a time."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.mine = folder, []
        Path("/tmp/ray").mkdir(exist_ok=True)  # Ray notes the address there, and does not make it
        head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": str(folder), **SMALL}
        super().__init__(initialize_head=True, head_node_args=head)
        for _ in range(count):
            self.add()

    def add(self) -> None:
        """In the main thread, as Ray wants it."""
        disk = self.folder / f"disk{len(list(self.folder.glob('disk*')))}"
        disk.mkdir()
        os.environ["TMPDIR"] = str(disk)
        self.mine.append((self.add_node(num_cpus=1, **SMALL), disk))
        del os.environ["TMPDIR"]

    def kill(self) -> list[str]:
        """The last one; gives what was on its disk."""
        node, disk = self.mine.pop()
        self.remove_node(node, allow_graceful=False)
        runs = [run.name for run in disk.glob("rlzoo-run-*/*")]
        shutil.rmtree(disk, ignore_errors=True)
        disk.mkdir()
        return runs


@contextmanager
def cluster_of(nodes: int):
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets' paths must be short
    cluster = Nodes(folder, nodes)
    try:
        yield cluster
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def kill_one(cluster: Nodes, runs: Path, sweeping: Future) -> list[str]:
    """Once both nodes are in the middle of a run, one of them is gone; later another comes."""
    until(lambda: len(half_done(runs)) >= 2 or sweeping.done())
    under_way = [run.name for run in half_done(runs)]
    print(
        f"killed while {' and '.join(under_way)} were under way; on its disk: {cluster.kill()}",
        flush=True,
    )
    until(lambda: len(list(runs.glob("*/summary.json"))) >= 3 or sweeping.done())
    cluster.add()
    return under_way


def with_a_node_killed(folder: Path, store: Path | None, local: Metrics) -> None:
    if store:
        shutil.rmtree(store, ignore_errors=True)
    with cluster_of(2) as cluster, ThreadPoolExecutor(1) as thread:
        sweeping = thread.submit(sweep, folder, 4, f"ray:{cluster.address}", store=store)
        killed = kill_one(cluster, store or folder, sweeping)
        assert sweeping.result() == local
    assert len(killed) == 2, "the runs were through before"


def try_all(place: Path) -> None:
    local = sweep(place / "local", 4, "local")
    lines = sum(map(len, local.values()))
    with_a_node_killed(place / "ray", None, local)
    print(f"8 runs, {lines} lines of metrics: the same by both executors with a node killed")
    with_a_node_killed(place / "home", place / "store", local)
    assert not list((place / "home").glob("*/checkpoints")), "checkpoints came home"
    print("and with --store, each node on its own disk, the killed one's deleted")


if __name__ == "__main__":
    in_a_folder(try_all)
