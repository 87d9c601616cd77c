"""One run of a sweep, called by an executor on any machine. No torch here: the run loads it."""

import errno
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlzoo.errors import CheckpointError, RlzooError, disk_is_full, first_line
from rlzoo.plugin.registry import load_zoo
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.display import Silent
from rlzoo.runs.folder import taken_up
from rlzoo.runs.lock import locked
from rlzoo.runs.metrics import REWARD, evaluation_text
from rlzoo.train.interrupt import stopped_in_words
from rlzoo.train.start import prepare
from rlzoo_lab.compare.sweep.plan import Job

# Seconds in which a worker that was killed has let go of its run. On this machine it takes no
# time; NFS keeps the locks of a machine that died for 90.
GONE = 100.0

Tell = Callable[..., None]  # called with (word, *rest): what a board's `news` takes


@dataclass
class Told(Silent):
    """Reports a run's progress a few times per second."""

    tell: Tell
    every: float = 0.25
    _last: float = 0.0

    def step(self, line: dict[str, Any], progress: float) -> None:
        now = time.monotonic()
        if now - self._last >= self.every or progress >= 1:
            self._last = now
            self.tell("step", progress, line["step"], line[REWARD])

    def evaluation(self, line: dict[str, Any]) -> None:
        self.tell("evaluation", evaluation_text(line))

    def note(self, text: str) -> None:
        self.tell("note", text)


@cache
def _zoo(process: int) -> Any:
    import torch

    torch.set_num_threads(1)
    return load_zoo()


def work(job: Job, tell: Tell) -> tuple[str, Any]:
    """Do a run, new or from its last checkpoint: ("done", its summary) or ("failed", the reason).

    Raises OSError if the disk is full, because all other runs would fail too.
    """
    try:
        with stopped_in_words():
            return "done", do(job, _zoo(os.getpid()), Told(tell))
    except Exception as error:  # the border of an executor: reported, not lost
        if disk_is_full(error):
            raise OSError(errno.ENOSPC, "no space left on device", str(job.path)) from error
        reason = first_line(error)
        if not isinstance(error, RlzooError):
            reason = f"{type(error).__name__}: {reason}"
        if error.__cause__ or not isinstance(error, RlzooError):
            with suppress(OSError):
                print(f"{job.path}:", file=sys.stderr)
                traceback.print_exc()
        return "failed", reason


def do(job: Job, zoo: Any, display: Any) -> dict[str, Any]:
    """One run, from the start or from its last checkpoint; returns its summary."""
    from rlzoo.train.loop import Loop

    with locked(job.path, patience=GONE):
        folder = taken_up(job.path, job.store)
        if job.store and (summary := folder.summary()):
            return summary  # an earlier process finished it
        (folder.path / "failed.json").unlink(missing_ok=True)
        write_atomically(folder.path / "recipe.yaml", job.recipe.to_yaml().encode())
        plan = prepare(job.recipe, zoo)
        try:
            return Loop(plan, folder, display).run()
        except CheckpointError as error:  # a run is a function of its recipe: do it again
            display.note(f"{error}; starting from scratch")
            shutil.rmtree(folder.checkpoints)
            return Loop(plan, folder, display).run()
