"""Ray tasks: each run is a task, which continues on another node if its node dies."""

import errno
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from rlzoo import Range, RlzooError, component
from rlzoo_zoo.packages import needs

ATTEMPTS = 3  # of a run whose worker or node dies
ANSWER = 5.0  # seconds in which the cluster's head must answer
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"  # the first frame that each side of HTTP/2 sends, empty


def to_be_had(*, address, **options):
    needs("ray", name="Ray")()
    with connected(address):
        pass


@component("executor", check=to_be_had)
class Ray:
    """Runs as tasks of a running Ray cluster: `--on ray:HOST:PORT`, or this machine's cluster.

    A run requests as many cores as it has threads,
    the memory that its model needs, and a GPU if its device needs one, which `device=auto` does if
    the cluster has any. If its worker or node dies, a run continues from its last checkpoint on
    another node, with at most three tries. The sweep's folder must be on a disk that all nodes
    share; with --store, each node uses its own disk. The current folder must be shared too if
    arguments name files in it. Plugin files of RLZOO_PLUGINS, the variables RLZOO_... and those of
    --allow-env are sent to the nodes. Ctrl-C ends all runs.
    Source: Moritz et al. 2018 (Ray), arXiv:1712.05889.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        cpus: Annotated[int | None, Range(1)] = None,
        gpus: Annotated[float | None, Range(0)] = None,
        gigabytes: Annotated[float | None, Range(0, closed="neither")] = None,
    ):
        self.address = address
        self.cpus, self.gpus, self.gigabytes = cpus, gpus, gigabytes

    def capacity(self, jobs):
        """All at once: Ray decides how many run, and nodes may join."""
        return len(jobs)

    def run(self, jobs, work, board, folder, at_a_time):
        """Do every run; raises OSError where one met a full disk, having stopped the others."""
        with connected(self.address):
            tasks = Tasks(work, board, Luggage(folder), self.wants)
            try:
                tasks.do(list(jobs), at_a_time)
            finally:
                tasks.stop()

    def wants(self, job):
        """The resources that a run takes of its node."""
        import ray

        any_gpu = ray.cluster_resources().get("GPU", 0) > 0
        gpus = float(job.device.startswith("cuda") or (job.device == "auto" and any_gpu))
        return {
            "num_cpus": self.cpus or job.threads,
            "num_gpus": gpus if self.gpus is None else self.gpus,
            "memory": int(self.gigabytes * 1e9 if self.gigabytes else job.memory),
        }


class Tasks:
    """The runs under way, and their messages."""

    def __init__(self, work, board, luggage, wants):
        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.ray, self.work, self.board, self.luggage, self.wants = ray, work, board, luggage, wants
        self.under_way: dict[Any, Any] = {}  # Ray's reference: job
        self.known: list[dict] = []  # what runs took of their nodes
        self.tries: Counter = Counter()  # of each run, by its name
        self.places: dict[str, str] = {}  # of runs that have begun: the node
        self.lost: dict[str, list[str]] = {}  # of runs that were lost: the nodes
        # Here, where no node that dies takes it along.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.ear = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})

    def do(self, queue, at_a_time):
        while queue or self.under_way:
            while queue and len(self.under_way) < at_a_time:
                self.send(queue.pop(0))
            ready, _ = self.ray.wait(list(self.under_way), timeout=0.5)
            self.hear()
            for task in ready:
                job = self.under_way.pop(task)
                if self.has_ended(job, task):
                    self.places.pop(job.name, None)
                else:
                    queue.insert(0, job)

    def send(self, job):
        from ray.util.scheduling_strategies import NodeLabelSchedulingStrategy, NotIn

        wants, lost = self.wants(job), self.lost.get(job.name)
        if wants not in self.known and not any(_fits(wants, node) for node in self.ray.nodes()):
            text = "{num_cpus} CPUs, {num_gpus:g} GPUs, {memory:.1e} bytes".format(**wants)
            self.board.news(job, "note", f"waits for a node with {text}; the cluster has none")
        self.known.append(wants)
        self.tries[job.name] += 1
        elsewhere = lost and NodeLabelSchedulingStrategy(
            hard={}, soft={"ray.io/node-id": NotIn(*lost)}
        )
        task = self.ray.remote(one_run).options(
            **wants, max_retries=0, name=job.name, scheduling_strategy=elsewhere or "SPREAD"
        )
        sent = task.remote(self.work, job, self.luggage, self.ear, self.tries[job.name])
        self.under_way[sent] = job

    def hear(self):
        """News of this try of each run; what was under way from an earlier one is late."""
        jobs = {job.name: job for job in self.under_way.values()}
        for name, number, word, *rest in self.ear.get_nowait_batch(self.ear.qsize()):
            if name not in jobs or number != self.tries[name]:
                continue
            if word == "begin":
                self.begin(jobs[name], rest[0])
            elif name in self.places:
                self.board.news(jobs[name], word, *rest)

    def begin(self, job, node):
        self.places[job.name] = node
        self.board.begin(job)
        self.board.news(job, "place", _names(self.ray.nodes()).get(node, node[:6]))

    def has_ended(self, job, task):
        """A run's outcome; False where it must be sent again."""
        errors = self.ray.exceptions
        try:
            word, found = self.ray.get(task)
        except errors.RayTaskError as error:  # before it could begin: no rlzoo on that node, say
            word, found = "failed", _said(error.cause)
        except errors.RayError as error:  # worker or node
            node = self.places.pop(job.name, None)
            if node:
                self.lost.setdefault(job.name, []).append(node)
            if self.tries[job.name] < ATTEMPTS:
                self.board.news(
                    job, "note", f"was lost ({_said(error)}); another node continues it"
                )
                return False
            word, found = "failed", f"was lost {ATTEMPTS} times ({_said(error)})"
        if word == "disk":
            raise OSError(errno.ENOSPC, found, str(job.path))
        if job.name not in self.places:
            self.board.begin(job)
        getattr(self.board, word)(job, found)
        return True

    def stop(self):
        for task in self.under_way:
            self.ray.cancel(task, force=True)
        self.ear.shutdown(force=True)


class Luggage:
    """The settings of the command's machine that a node needs."""

    def __init__(self, folder):
        allowed = os.environ.get("RLZOO_ALLOW_ENV", "").split(",")
        self.folder, self.here = folder.resolve(), os.getcwd()
        self.variables = {
            k: v for k, v in os.environ.items() if k.startswith("RLZOO_") or k in allowed
        }
        plugins = os.environ.get("RLZOO_PLUGINS", "").split(",")
        self.plugins = {p: Path(p).read_text() if p.endswith(".py") else "" for p in plugins if p}

    def unpack(self):
        """In a worker: the same folder, variables and plugins, also those that are not there."""
        with suppress(OSError):  # a node that does not see the disk
            os.chdir(self.here)
        os.environ.update(self.variables)
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        with suppress(OSError):  # what runs print; else Ray's logs have it
            log = os.open(self.folder / "workers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
        os.environ["RLZOO_PLUGINS"] = ",".join(
            _placed(name, text) if text and not Path(name).is_file() else name
            for name, text in self.plugins.items()
        )


@cache
def _placed(name, text):
    """A plugin's file, written where this worker finds it."""
    path = Path(tempfile.mkdtemp(prefix="rlzoo-plugin-"), Path(name).name)
    path.write_text(text)
    return str(path)


def one_run(work, job, luggage, ear, number):
    """The work of a task, in a worker of its node."""
    import ray

    luggage.unpack()

    def tell(*news):
        return ear.actor.put_nowait.remote((job.name, number, *news))  # without waiting for it

    ray.get(tell("begin", ray.get_runtime_context().get_node_id()))  # but for this
    if not job.store and not luggage.folder.is_dir():
        who = socket.gethostname()
        return "failed", (
            f"{who} has no access to {luggage.folder}; use a shared disk, or give --store URL"
        )
    if job.store:  # its folder is kept there: here it is on the node's own disk
        job = replace(job, path=Path(tempfile.mkdtemp(prefix="rlzoo-run-"), job.name))
    try:
        word, found = work(job, tell)
    except OSError as error:
        return "disk", error.strerror or str(error)
    if job.store and word == "done":
        shutil.rmtree(job.path.parent, ignore_errors=True)
    return word, found


@contextmanager
def connected(address):
    """Ray at the address, and no longer; where the caller is connected already, as it is."""
    ours = _connect(address or os.environ.get("RAY_ADDRESS") or "auto")
    try:
        yield
    finally:
        if ours:
            sys.modules["ray"].shutdown()


def _connect(address):
    """False where there is a connection already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", f"{ANSWER:g}")
    try:
        _knock(address)
        import ray

        if ray.is_initialized():
            return False
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = " here" if address == "auto" else f" at {address}"
        raise RlzooError(
            f"no Ray cluster{where}: {getattr(error, 'strerror', None) or _said(error)} (start "
            "one with `ray start --head`, or use --on ray:HOST:PORT for a cluster to which this "
            "machine belongs)"
        ) from None
    ray._private.worker._worker_logs_enabled = False  # nodes that die, printed between tables
    return True


def _knock(address):
    """Raises OSError where no head answers, ValueError where it is not an address. Ray itself
    waits for minutes there."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ValueError(f"{address!r} is not HOST:PORT")
    with socket.create_connection((host, int(port)), ANSWER) as head:
        if not os.environ.get("RAY_USE_TLS"):  # it speaks gRPC, which is HTTP/2
            head.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
            if head.recv(9)[3:4] != SETTINGS[3:4]:
                raise ConnectionError("the server at that address is not the head of a cluster")


def _fits(wants, node):
    has = node["Resources"]
    return node["Alive"] and all(
        has.get(name, 0) >= wants[key]
        for key, name in (("num_cpus", "CPU"), ("num_gpus", "GPU"), ("memory", "memory"))
    )


def _names(nodes):
    """id -> the host's name, and a part of the id where several nodes share the host."""
    hosts = Counter(node["NodeManagerHostname"] for node in nodes)
    return {
        node["NodeID"]: host if hosts[host] == 1 else f"{host}/{node['NodeID'][:4]}"
        for node in nodes
        for host in [node["NodeManagerHostname"]]
    }


def _said(error):
    """The first sentence of Ray's long message."""
    text = " ".join(str(error).split())
    return text.partition(". ")[0].rstrip(".") or type(error).__name__
