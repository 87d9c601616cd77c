"""Runs on a Ray cluster of a head and two nodes, on the loopback address: one node is killed."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlzoo.cli import main
from rlzoo.runs.lock import is_locked
from rlzoo_zoo.executors import local
from rlzoo_zoo.executors import ray as on_ray

ray = pytest.importorskip("ray", reason="the extra `ray`")
pytestmark = [pytest.mark.process, pytest.mark.landing]
PATIENCE = 120  # seconds that anything here may take; and five times that, all of it

HOLD = '''
import os, time
from pathlib import Path
from rlzoo import hookimpl

class Hold:
    """A logger that stops a run after its second step, until somebody says go."""

    def __init__(self, path):
        self.path = Path(path)

    def log(self, metrics):
        place = Path(os.environ["RLZOO_HOLD"])
        if metrics["step"] == 2:
            (place / self.path.name).touch()
            while not (place / "go").exists():
                time.sleep(0.02)

    def close(self): ...

@hookimpl
def register_loggers(register):
    register(Hold)
'''


@pytest.fixture(scope="module", autouse=True)
def limit():
    def stop(*_):
        raise TimeoutError(f"not done in {5 * PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5 * PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def runs(place, model_dir):
    """The words of two runs that wait for `go` in their middle, as given in the folder `place`:
    model and plugin are named by where they are from there."""
    shutil.copytree(model_dir, place / "model")
    (place / "hold.py").write_text(HOLD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("RLZOO_PLUGINS", "hold.py")
        patch.setenv("RLZOO_HOLD", str(place))
        yield ["sweep", "recipe=ppo_gae", "model.path=model", "seed=0,1", "rollout.prompts=4",
               "rollout.samples=4", "rollout.max_new_tokens=5", "train.steps=4", "eval.samples=8",
               "checkpoint.every=1", "device=cpu", "loggers=hold"]  # fmt: skip


@pytest.fixture(scope="module")
def by_local(runs, place):
    """Their metrics by `--on local`, before Ray has threads here that a fork would miss."""
    fork = multiprocessing.get_context("fork")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.multiprocessing, "get_context", lambda method: fork)
        (place / "go").touch()
        assert main([*runs, "--dir", "local", "--jobs", "2"]) == 0
        (place / "go").unlink()
    return metrics(place / "local")


@pytest.fixture(scope="module")
def cluster(by_local, place):
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets' paths must be short
    Path("/tmp/ray").mkdir(exist_ok=True)  # Ray notes the address there, and does not make it
    small = {"object_store_memory": 80_000_000, "include_log_monitor": False}
    quick = {"period_ms": 500, "failure_threshold": 4, "initial_delay_ms": 0}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick.items():
            patch.setenv(f"RAY_health_check_{name}", f"{value}")
        head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args=small | head)
        (place / "disk").mkdir()
        patch.setenv("TMPDIR", str(place / "disk"))  # of the nodes
        try:
            cluster.nodes = [cluster.add_node(num_cpus=1, wait=False, **small) for _ in range(2)]
            cluster.wait_for_nodes(PATIENCE)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def metrics(folder):
    """Each run's, by its name; times are those of the machine."""
    untold = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
    return {
        path.parent.name: [
            {k: v for k, v in json.loads(line).items() if not k.startswith(untold)}
            for line in path.read_text().splitlines()
        ]
        for path in sorted(folder.glob("*/metrics.jsonl"))
    }


class Board:
    """What an executor told of each run."""

    def __init__(self):
        self.said = {}

    def begin(self, job):
        self.said.setdefault(job.name, []).append("begin")

    def news(self, job, word, *rest):
        self.said.setdefault(job.name, []).append((word, *rest))

    def done(self, job, found):
        self.said[job.name].append(("done", found))

    def failed(self, job, reason):
        self.said[job.name].append(("failed", reason))


def work(job, tell):
    """In the place of a run: what becomes of it is its name."""
    with open(job.path / job.name, "a") as file:
        file.write(f"{os.getpid()}\n")
    if job.name == "dies":
        os._exit(1)
    if job.name == "full":
        raise OSError(errno.ENOSPC, "no space left on device")
    if job.name == "long":
        time.sleep(10 * PATIENCE)
    return ("failed", "no luck") if job.name == "fails" else ("done", job.name)


@pytest.fixture(scope="module")
def connection(cluster):
    """One for all tests, for each has workers of its own."""
    with on_ray.connected(cluster.address):
        assert ray.is_initialized()
    assert not ray.is_initialized()
    with on_ray.connected(cluster.address):
        yield cluster


@pytest.fixture
def do(connection, tmp_path):
    """Runs that are none, by their names: what the board heard of them."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def do(*names):
        board = Board()
        jobs = [
            SimpleNamespace(name=n, path=tmp_path, device="cpu", threads=1, memory=1e6, store="")
            for n in names
        ]
        executor = on_ray.Ray(address=connection.address)
        executor.run(jobs, work, board, tmp_path, executor.capacity(jobs))
        return board.said

    return do


def test_a_run_that_fails_by_itself_is_done_once(do, tmp_path):
    said = do("well", "fails")
    assert said["well"][0] == "begin"
    assert said["well"][-1] == ("done", "well")
    assert said["fails"][-1] == ("failed", "no luck")
    assert len((tmp_path / "fails").read_text().split()) == 1


def test_a_run_whose_worker_dies_is_done_three_times_and_elsewhere(do, tmp_path):
    said = do("dies")["dies"]
    assert len((tmp_path / "dies").read_text().split()) == on_ray.ATTEMPTS
    assert said[-1][1].startswith("was lost 3 times (The worker died unexpectedly")
    places = [what[1] for what in said if what[0] == "place"]
    assert places[0] != places[1], "was not taken up by the other node"


def test_a_full_disk_ends_all(do, tmp_path):
    with pytest.raises(OSError, match="no space left on device"):
        do("full", "long")
    assert_gone(tmp_path / "long")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="Ctrl-C ends a worker of xdist")
def test_ctrl_c_leaves_nothing_running(do, tmp_path):
    def interrupt():
        wait_for(lambda: (tmp_path / "long").exists())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        do("long", "long2")
    assert_gone(tmp_path / "long")


def test_a_node_killed_in_the_middle_changes_no_number(connection, runs, place, by_local, capsys):
    """Nor do nodes that have their runs on their own disks, and keep them in a store."""
    cluster, ended = connection, []

    def kill():
        folders = [place / "away" / name for name in by_local]
        wait_for(lambda: all((place / run.name).exists() for run in folders))
        cluster.remove_node(cluster.nodes[1], allow_graceful=False)
        wait_for(lambda: not all(map(is_locked, folders)))  # its worker is dead, too
        (place / "go").touch()
        ended.append([run.name for run in folders if not is_locked(run)])

    for name in by_local:
        (place / name).unlink()
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    assert main([*runs, "--dir", "away", "--on", f"ray:{cluster.address}"]) == 0
    thread.join()
    said = capsys.readouterr().out
    assert metrics(place / "away") == by_local
    assert f"{ended[0][0]}: was lost (Task failed" in said
    assert f"{ended[0][0]}: resumed at step " in said
    assert said.count(" s on ") == 2, "the board does not say where they were"
    stored = [*runs, "--dir", "home", "--store", f"file://{place}/store"]
    assert main([*stored, "--on", f"ray:{cluster.address}"]) == 0
    assert metrics(place / "home") == metrics(place / "store") == by_local
    assert not list((place / "home").glob("*/checkpoints"))
    assert list((place / "store").glob("*/checkpoints"))
    assert not list((place / "disk").glob("rlzoo-run-*")), "a node's disk fills up"


def wait_for(what):
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def assert_gone(file):
    """The worker that wrote its number there has ended, or does so at once."""
    if file.exists():
        process = Path("/proc", file.read_text().split()[-1])
        wait_for(lambda: has_ended(process))


def has_ended(process):
    try:
        return " Z " in (process / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter: it ended between open and read
        return True
