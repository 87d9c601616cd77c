"""Metrics in Weights & Biases; offline by default."""

import os
import shutil
import uuid
from typing import Any

from rlzoo import component
from rlzoo_zoo.packages import needs


class Steps:
    """Logs metrics as steps of `run`, which has wandb's interface."""

    run: Any

    def log(self, metrics):
        """metrics: a flat mapping of one step or one evaluation."""
        rest = {name: value for name, value in metrics.items() if name != "step"}
        self.run.log(rest, step=metrics["step"])

    def close(self):
        self.run.finish()  # waits until all is written


@component("logger", check=needs("wandb"))
class Wandb(Steps):
    """A wandb run of `project` with the run folder's name, its files in `wandb/` there.

    Nothing leaves this machine unless WANDB_MODE is `online`; otherwise it is offline, and `wandb
    sync` uploads later. Metrics and steps keep their names and numbers; an evaluation has the step
    of the preceding training line. A resumed run logs the earlier lines again: offline, to new
    files; online, to the same run (`wandb-id.txt`), which ignores steps that it already has.
    Source: the wandb library.
    """

    def __init__(self, path, *, project: str = "rlzoo"):
        import wandb

        mode = os.environ.get("WANDB_MODE", "offline")
        note = path / "wandb-id.txt"
        if not note.is_file():
            note.write_text(uuid.uuid4().hex[:8])
        if mode == "offline":
            shutil.rmtree(path / "wandb", ignore_errors=True)
        self.run = wandb.init(
            project=project,
            name=path.name,
            id=note.read_text(),
            resume="allow" if mode == "online" else None,
            dir=str(path),
            mode=mode,  # type: ignore[arg-type, unused-ignore]  # wandb refuses a word not its own
            # Only the metrics: no readings of the machine, no copy of what is printed.
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
        )
