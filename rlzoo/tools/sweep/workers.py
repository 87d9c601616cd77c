"""Worker processes of a sweep: each does one run after another, so that imports are paid once.

The parent hands out runs and listens; a worker that dies has its run done again by another, from
its last checkpoint. Workers die with their parent. No torch here: only workers load it.
"""

import contextlib
import errno
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from rlzoo.errors import CheckpointError, RlzooError, first_line
from rlzoo.plugin.registry import load_zoo
from rlzoo.runs.disk import disk_is_full, write_atomically, write_json
from rlzoo.runs.display import Silent
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.lock import locked
from rlzoo.runs.metrics import REWARD, evaluation_text
from rlzoo.tools.sweep.plan import Job
from rlzoo.train.start import prepare

ATTEMPTS = 3  # of a run whose worker dies or hangs
BEAT = 2.0  # seconds between a worker's signs of life
ASLEEP = 5.0  # seconds between two looks, after which nobody is to blame for a silence
SILENT = 60.0  # seconds without one, after which a worker is taken for stopped
GONE = 10.0  # seconds in which the worker of a sweep that was killed has noticed it, and ended


@dataclass
class Worker:
    """A process, the pipe to it, and the run that it is at."""

    process: Any
    pipe: Any
    job: Job | None = None
    heard: float = 0.0  # when it last gave a sign of life (seconds of the monotonic clock)
    news: float = 0.0  # when its run last got on
    pace: float = 0.0  # the longest that this run took to get on


class Crew:
    """The workers of a sweep, and the runs that nobody has begun."""

    def __init__(
        self, jobs: Sequence[Job], workers: int, folder: Path, board: Any, patience: float
    ):
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
            self.board.tick()
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
                if not worker.pipe.poll():  # else it has something to say
                    self.look_after(worker, now)

    def look_after(self, worker: Worker, now: float) -> None:
        """A worker that is stopped, or whose run no longer gets on, is killed: another goes on."""
        longest = max(self.patience, 20 * worker.pace)
        how = ""
        if now - worker.heard > SILENT:
            how = f"stopped: no sign of life in {SILENT:.0f} s"
        elif now - worker.news > longest:
            how = f"hung: no step in {longest:.0f} s"
        if how:
            worker.process.kill()
            self.replace(worker, how)

    def hire(self, place: int) -> Worker:
        gpu = self.gpus[place % len(self.gpus)] if self.gpus else None
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self.folder / "workers.log", gpu))
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
        with contextlib.suppress(OSError):  # it is dead already: its pipe's end says so
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
        if word == "failed":
            _fail(job, rest[0])
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
            _fail(job, reason)
            self.board.failed(job, reason)
        else:
            self.queue.appendleft(job)
            self.board.news(job, "note", f"its worker died ({how}); another takes it up")
        place = self.workers.index(worker)
        self.workers[place] = self.hire(place)
        self.give(self.workers[place])

    def kill(self) -> None:
        """A run can be cut off anywhere: it goes on from its checkpoint."""
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


def run_all(
    jobs: Sequence[Job], workers: int, folder: Path, board: Any, patience: float = 1800.0
) -> None:
    """Do every run. A failure is written into the run's folder as failed.json; raises Unfinished
    where a worker met a full disk, having stopped them all.

    patience: seconds that a run may take to get on, or 20 times as long as it ever took so far.
    """
    crew = Crew(jobs, workers, folder, board, patience)
    try:
        crew.run()
    finally:
        crew.kill()


def _gpus(job: Job) -> list[str]:
    """GPUs to spread over: only where the recipe leaves the choice."""
    if job.recipe.config.device not in ("auto", "cuda"):
        return []
    import torch

    count = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen else [str(i) for i in range(count)]
    return names[:count] if count > 1 else []


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit status {code}"
    known = -code in set(signal.Signals)
    name = signal.Signals(-code).name if known else f"signal {-code}"
    return f"{name}: out of memory, or killed by hand" if name == "SIGKILL" else name


def _fail(job: Job, reason: str) -> None:
    job.path.mkdir(parents=True, exist_ok=True)
    write_json(job.path / "failed.json", {"reason": reason})


class Told(Silent):
    """Tells the parent what a run's display would show, a few times a second."""

    def __init__(self, pipe: Any, every: float = 0.25):
        self.pipe = pipe
        self.every = every
        self._last = 0.0

    def step(self, line: dict[str, Any], progress: float) -> None:
        now = time.monotonic()
        if now - self._last >= self.every or progress >= 1:
            self._last = now
            self.pipe.send(("step", progress, line["step"], line[REWARD]))

    def evaluation(self, line: dict[str, Any]) -> None:
        self.pipe.send(("evaluation", evaluation_text(line)))

    def note(self, text: str) -> None:
        self.pipe.send(("note", text))


def work(pipe: Any, log: Path, gpu: str | None) -> None:
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
    import torch

    torch.set_num_threads(1)
    zoo = load_zoo()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            summary = do(job, zoo, Told(pipe))
        except Exception as error:  # the border of the process: told, not lost
            if disk_is_full(error):
                pipe.send(("disk", "no space left on device"))
                return
            reason = first_line(error)
            if not isinstance(error, RlzooError):
                reason = f"{type(error).__name__}: {reason}"
            if error.__cause__ or not isinstance(error, RlzooError):
                with contextlib.suppress(OSError):
                    print(f"{job.path}:", file=sys.stderr)
                    traceback.print_exc()
            pipe.send(("failed", reason))
        else:
            pipe.send(("done", summary))


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


def do(job: Job, zoo: Any, display: Any) -> dict[str, Any]:
    """One run, new or from its last checkpoint; returns its summary."""
    from rlzoo.train.loop import Loop

    folder = RunFolder(job.path)
    with locked(folder.path, patience=GONE):
        (folder.path / "failed.json").unlink(missing_ok=True)
        write_atomically(folder.path / "recipe.yaml", job.recipe.to_yaml().encode())
        plan = prepare(job.recipe, zoo)
        try:
            return Loop(plan, folder, display).run()
        except CheckpointError as error:  # a run is a function of its recipe: do it again
            display.note(f"{error}; beginning anew")
            shutil.rmtree(folder.checkpoints)
            return Loop(plan, folder, display).run()
