"""Processes on this machine: each does one run after another, so that it imports only once.

The parent distributes the runs; if a worker dies, another one continues its run from the last
checkpoint. Workers end with their parent. No torch here: only a run loads it.
"""

import contextlib
import errno
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Annotated, Any

from rlzoo import Range, component

ATTEMPTS = 3  # of a run whose worker dies or hangs
BEAT = 2.0  # seconds between a worker's signs of life
ASLEEP = 5.0  # seconds between two looks, after which a silence is not a worker's fault
SILENT = 60.0  # seconds without one, after which a worker is taken for stopped


@component("executor")
class Local:
    """Runs as processes on this machine, as many as there are cores and as fit into memory. With
    several GPUs, each run gets one.

    If a run makes no step for `patience` minutes, or for 20 times its longest step, another process
    continues it, as it does if its process dies; after three tries, the run has failed.
    Source: Python's multiprocessing.
    """

    def __init__(
        self,
        *,
        patience: Annotated[float, Range(0, closed="neither"), "minutes without a step"] = 30.0,
    ):
        self.patience = 60 * patience

    def capacity(self, jobs):
        """The number of runs at a time."""
        if jobs[0].device.startswith("cuda:"):
            return 1
        if gpus := _gpus(jobs[0]):
            return len(gpus)
        return max(1, min(_cores(), int(_free_memory() / jobs[0].memory)))

    def run(self, jobs, work, board, folder, at_a_time):
        """Do every run; if a worker's disk is full, stops all runs and raises OSError."""
        crew = Crew(jobs, at_a_time, work, folder, board, self.patience)
        try:
            crew.run()
        except KeyboardInterrupt as stopped:  # or SIGTERM, say
            crew.stop(getattr(stopped, "status", 0))
            raise
        finally:
            crew.kill()


@dataclass
class Worker:
    """A process, the pipe to it, and the run that it is at."""

    process: Any
    pipe: Any
    job: Any = None
    heard: float = 0.0  # when it last gave a sign of life (seconds of the monotonic clock)
    news: float = 0.0  # when its run last got on
    pace: float = 0.0  # the longest that this run took to get on


class Crew:
    """The workers of a sweep, and the runs not yet begun."""

    def __init__(
        self, jobs: Sequence[Any], workers: int, work: Callable, folder: Path, board: Any,
        patience: float,
    ):  # fmt: skip
        self.work = work
        self.patience = patience  # seconds
        self.queue, self.attempts = deque(jobs), dict.fromkeys((job.name for job in jobs), 0)
        self.folder, self.board = folder, board
        self.gpus = _gpus(jobs[0])
        self.workers: list[Worker] = []
        self.size = workers

    def run(self) -> None:
        """Until no run is left; raises OSError where a worker met a full disk."""
        for place in range(self.size):
            self.workers.append(self.hire(place))
            self.give(self.workers[-1])
        last = time.monotonic()
        while any(w.job for w in self.workers):
            ready: Any = connection.wait([w.pipe for w in self.workers if w.job], timeout=0.5)
            for worker in [w for w in self.workers if w.pipe in ready]:
                try:
                    word, *rest = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    self.replace(worker)
                else:
                    self.hear(worker, word, *rest)
            now = time.monotonic()
            asleep = now - last  # long where this process itself was stopped, and all with it
            last = now
            for worker in [w for w in self.workers if w.job]:
                if asleep > ASLEEP:
                    worker.heard += asleep
                    worker.news += asleep
                if not worker.pipe.poll():  # else it has sent something
                    self.look_after(worker, now)

    def look_after(self, worker: Worker, now: float) -> None:
        """A worker that is stopped, or whose run no longer gets on, is killed: another
        continues."""
        longest = max(self.patience, 20 * worker.pace)
        how = ""
        if now - worker.heard > SILENT:
            how = f"stopped: the process did not respond for {SILENT:.0f} s"
        elif now - worker.news > longest:
            how = f"hung: there was no step for {longest:.0f} s"
        if how:
            worker.process.kill()
            self.replace(worker, how)

    def hire(self, place: int) -> Worker:
        gpu = self.gpus[place % len(self.gpus)] if self.gpus else None
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        log = self.folder / "workers.log"
        process = context.Process(target=serve, args=(theirs, self.work, log, gpu))
        with _without_main():
            process.start()
        theirs.close()  # so that the pipe ends when the worker does
        return Worker(process, ours)

    def give(self, worker: Worker) -> None:
        """It takes up the next run, if there is one."""
        if not self.queue:
            return
        worker.job = self.queue.popleft()
        worker.heard = worker.news = time.monotonic()
        worker.pace = 0.0
        self.attempts[worker.job.name] += 1
        with contextlib.suppress(OSError):  # it is dead already: its pipe's end shows it
            worker.pipe.send(worker.job)
        self.board.begin(worker.job)

    def hear(self, worker: Worker, word: str, *rest: Any) -> None:
        job = worker.job
        assert job is not None
        worker.heard = time.monotonic()
        if word == "alive":
            return
        worker.pace = max(worker.pace, worker.heard - worker.news)
        worker.news = worker.heard
        if word == "disk":
            raise OSError(errno.ENOSPC, rest[0], str(job.path))
        if word not in ("done", "failed"):
            self.board.news(job, word, *rest)
            return
        worker.job = None
        getattr(self.board, word)(job, *rest)
        self.give(worker)

    def replace(self, worker: Worker, how: str = "") -> None:
        """A worker died: its run goes back into the queue, unless it did so too often."""
        worker.process.join()
        worker.pipe.close()
        how = how or _cause(worker.process.exitcode)
        job = worker.job
        assert job is not None
        if self.attempts[job.name] >= ATTEMPTS:
            reason = f"its worker died {ATTEMPTS} times ({how}); see {self.folder / 'workers.log'}"
            self.board.failed(job, reason)
        else:
            self.queue.appendleft(job)
            self.board.news(job, "note", f"its worker died ({how}); another one continues the run")
        place = self.workers.index(worker)
        self.workers[place] = self.hire(place)
        self.give(self.workers[place])

    def stop(self, status: int) -> None:
        """Every run ends after its step, with a checkpoint. status: 128 + the number of the signal
        that requested it."""
        # The whole group may have had that one, and the same again stops a run at once.
        number = signal.SIGHUP if status == 128 + signal.SIGTERM else signal.SIGTERM
        at_work = [w for w in self.workers if w.job]
        for worker in at_work:
            self.board.news(worker.job, "note", "stopping after this step with a checkpoint")
            os.kill(worker.process.pid, number)
        while at_work:
            ready: Any = connection.wait([w.pipe for w in at_work])
            for worker in [w for w in at_work if w.pipe in ready]:
                try:
                    word, *rest = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    at_work.remove(worker)
                    continue
                if word in ("done", "failed"):  # before the signal came
                    getattr(self.board, word)(worker.job, *rest)
                    at_work.remove(worker)

    def kill(self) -> None:
        """A run can be cut off anywhere: it continues from its checkpoint."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A worker begins with what its parent's main module does, unless that has no file: a script
    that sweeps would sweep again in each."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _gpus(job: Any) -> list[str]:
    """GPUs to spread over: only where the recipe leaves the choice."""
    if job.device not in ("auto", "cuda"):
        return []
    import torch

    count = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen else [str(i) for i in range(count)]
    return names[:count]


def _cause(code: int | None) -> str:
    number = 0 if code is None else -code if code < 0 else code - 128
    if number <= 0:
        return f"exit status {code}"
    known = number in set(signal.Signals)
    name = signal.Signals(number).name if known else f"signal {number}"
    return f"{name}: out of memory, or killed by a user" if name == "SIGKILL" else name


def serve(pipe: Any, work: Callable, log: Path, gpu: str | None) -> None:
    """What a worker process does: runs, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with contextlib.suppress(OSError):
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
    pipe = _Shared(pipe)
    threading.Thread(target=_beat, args=(pipe,), daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            found = work(job, lambda *news: pipe.send(news))
        except OSError as error:  # a full disk: nothing else would go better
            pipe.send(("disk", error.strerror or str(error)))
            return
        except KeyboardInterrupt as stopped:  # by SIGTERM, say, after a checkpoint
            sys.exit(getattr(stopped, "status", 1))
        pipe.send(found)


class _Shared:
    """A pipe that two threads of a worker write to."""

    def __init__(self, pipe: Any):
        self.recv, self._pipe, self._lock = pipe.recv, pipe, threading.Lock()

    def send(self, message: Any) -> None:
        with self._lock:
            self._pipe.send(message)


def _beat(pipe: _Shared) -> None:
    """Signs of life, from a thread of its own: a process that is stopped gives none."""
    with contextlib.suppress(OSError):  # the parent is gone
        while True:
            pipe.send(("alive",))
            time.sleep(BEAT)


def _die_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        return max(1, min(cores or 1, round(int(quota[0]) / int(quota[1]))))
    return cores or 1


def _free_memory() -> float:
    available = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
    free = int(available[1]) * 1024.0 if available else float("inf")
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if limit.strip().isdigit() and used.strip().isdigit():
        free = min(free, float(int(limit) - int(used)))
    return free


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
