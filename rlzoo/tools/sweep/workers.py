"""Worker processes of a sweep: each does one run after another, so that imports are paid once.

The parent hands out runs and listens; a worker that dies has its run done again by another, from
its last checkpoint. Workers die with their parent. No torch here: only workers load it.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from rlzoo.errors import DiskFull, RlzooError
from rlzoo.runs.disk import disk_is_full
from rlzoo.runs.display import Silent
from rlzoo.runs.metrics import REWARD, evaluation_text
from rlzoo.tools.sweep.plan import Job

ATTEMPTS = 3  # of a run whose worker dies


# ---------------------------------------------------------------- in the parent


@dataclass
class Worker:
    """A process, the pipe to it, and the run that it is at."""

    process: Any
    pipe: Any
    job: Job | None = None


def run_all(jobs: Sequence[Job], workers: int, folder: Path, board: Any) -> None:
    """Do every run. A failure is written into the run's folder as failed.json; raises DiskFull
    where a worker met a full disk, having stopped them all."""
    queue, attempts = deque(jobs), dict.fromkeys((job.name for job in jobs), 0)
    gpus = _gpus(jobs[0])
    crew: list[Worker] = []
    try:
        for i in range(workers):
            crew.append(_hire(folder, gpus[i % len(gpus)] if gpus else None))
            _give(crew[-1], queue, attempts, board)
        while any(w.job for w in crew):
            ready: Any = connection.wait([w.pipe for w in crew if w.job], timeout=0.5)
            board.tick()
            for worker in [w for w in crew if w.pipe in ready]:
                try:
                    word, *rest = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    i = crew.index(worker)
                    crew[i] = _bury(worker, queue, attempts, board, folder, gpus, i)
                    _give(crew[i], queue, attempts, board)
                    continue
                job = worker.job
                assert job is not None
                if word == "disk":
                    raise DiskFull(f"{job.path}: {rest[0]}")
                if word in ("done", "failed"):
                    worker.job = None
                    if word == "failed":
                        _fail(job, rest[0])
                    getattr(board, word)(job, *rest)
                    _give(worker, queue, attempts, board)
                else:
                    board.news(job, word, *rest)
    finally:
        # A run can be cut off anywhere: it goes on from its checkpoint.
        for worker in crew:
            worker.process.kill()
        for worker in crew:
            worker.process.join()
            worker.pipe.close()


def _gpus(job: Job) -> list[str]:
    """GPUs to spread over: only where the recipe leaves the choice."""
    if job.recipe.config.device not in ("auto", "cuda"):
        return []
    import torch

    count = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen else [str(i) for i in range(count)]
    return names[:count] if count > 1 else []


def _hire(folder: Path, gpu: str | None) -> Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, folder / "workers.log", gpu))
    process.start()
    theirs.close()  # so that the pipe ends when the worker does
    return Worker(process, ours)


def _give(worker: Worker, queue: deque[Job], attempts: dict[str, int], board: Any) -> None:
    if not queue:
        return
    worker.job = queue.popleft()
    attempts[worker.job.name] += 1
    with contextlib.suppress(OSError):  # it is dead already: its pipe's end says so
        worker.pipe.send(worker.job)
    board.begin(worker.job)


def _bury(
    worker: Worker,
    queue: deque[Job],
    attempts: dict[str, int],
    board: Any,
    folder: Path,
    gpus: list[str],
    place: int,
) -> Worker:
    """A worker died: its run goes back into the queue, unless it did so too often."""
    worker.process.join()
    worker.pipe.close()
    how = _cause(worker.process.exitcode)
    job = worker.job
    assert job is not None
    if attempts[job.name] >= ATTEMPTS:
        reason = f"its worker died {ATTEMPTS} times ({how}); see {folder / 'workers.log'}"
        _fail(job, reason)
        board.failed(job, reason)
    else:
        queue.appendleft(job)
        board.news(job, "note", f"its worker died ({how}); another takes it up")
    return _hire(folder, gpus[place % len(gpus)] if gpus else None)


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name
    return f"{name}: out of memory, or killed by hand" if name == "SIGKILL" else name


def _fail(job: Job, reason: str) -> None:
    from rlzoo.runs.disk import write_json

    job.path.mkdir(parents=True, exist_ok=True)
    write_json(job.path / "failed.json", {"reason": reason})


# ---------------------------------------------------------------- in the worker


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

    def evaluation(self, found: dict[str, Any]) -> None:
        self.pipe.send(("evaluation", evaluation_text(found)))

    def note(self, text: str) -> None:
        self.pipe.send(("note", text))


def work(pipe: Any, log: Path, gpu: str | None) -> None:
    """What a worker process does: runs, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with contextlib.suppress(OSError):
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
    import torch

    from rlzoo.plugin.registry import load_zoo

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
            if not isinstance(error, RlzooError):
                with contextlib.suppress(OSError):
                    print(f"{job.path}:", file=sys.stderr)
                    traceback.print_exc()
            pipe.send(("failed", _reason(error)))
        else:
            pipe.send(("done", summary))


def _die_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, RlzooError) else f"{type(error).__name__}: {first}"


def do(job: Job, zoo: Any, display: Any) -> dict[str, Any]:
    """One run, new or from its last checkpoint; returns its summary."""
    from rlzoo.errors import CheckpointError
    from rlzoo.recipe.plan import make_plan
    from rlzoo.runs.disk import write_atomically
    from rlzoo.runs.folder import RunFolder
    from rlzoo.train.loop import train

    folder = RunFolder(job.path)
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / "failed.json").unlink(missing_ok=True)
    write_atomically(folder.path / "recipe.yaml", job.recipe.to_yaml().encode())
    plan = make_plan(job.recipe, zoo)
    try:
        return train(plan, folder, display)
    except CheckpointError as error:  # a run is a function of its recipe: do it again
        display.note(f"{error}; beginning anew")
        shutil.rmtree(folder.checkpoints)
        return train(plan, folder, display)
