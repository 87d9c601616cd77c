"""Which weights of a run: those at its end, those of its best evaluation, or a checkpoint's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError, RunError, first_line
from rlzoo.runs.disk import read_json
from rlzoo.runs.folder import RunFolder, open_folder, saved_steps, step_of
from rlzoo_lab.words import quoted


def open_own(path: str | Path, needed: str) -> RunFolder:
    """A run folder that rlzoo trained. Raises RunError where it was imported, which leaves the
    `needed` behind, or where it is not a run's folder."""
    folder = open_folder(path)
    if whose := folder.summary().get("imported"):
        raise RunError(
            f"{path} was imported from {whose['from']}, without {needed}; rlzoo doctor, report and "
            "compare read such a run",
            kind="imported",
        )
    return folder


@dataclass(frozen=True)
class Weights:
    """path: a model folder that transformers loads, or a checkpoint of training (`raw`).

    step: after how many steps; name: "model", "best" or "checkpoint".
    """

    path: Path
    step: int
    name: str
    raw: bool = False

    def words(self) -> list[str]:
        """Words that make a recipe start from them, if words can."""
        return [] if self.raw else [f"model.path={quoted(self.path)}"]

    def load_into(self, model: Any) -> None:
        """Load a checkpoint's weights into the run's policy; a folder's are loaded already."""
        if self.raw:
            from rlzoo.train.checkpoint import load_networks  # torch

            load_networks(self.path, {"actor": model})


def choose(folder: RunFolder, which: str | None) -> Weights:
    """`which`: best, last (of an unfinished run its newest checkpoint), the step of a checkpoint;
    None: the model at the end of a finished run."""
    summary = folder.summary()
    if which in (None, "last") and summary:
        return Weights(folder.path / "model", summary["steps"], "model")
    there = saved_steps(folder.checkpoints)
    steps = [step_of(path) for path in there]
    best = folder.path / "best" / "best.json"
    choices = ["best"] * best.is_file() + ["last"] * bool(summary or steps) + [*map(str, steps)]
    known = f"there are: {', '.join(choices)}" if choices else "there is none yet"
    if which is None:
        raise RunError(f"{folder.path} has not finished: choose one with --checkpoint ({known})")
    if which == "best":
        if not best.is_file():
            raise RunError(
                f"--checkpoint: {folder.path} keeps no best one; set checkpoint.best=true ({known})"
            )
        try:
            step = int(read_json(best)["step"])
        except (ValueError, LookupError, TypeError) as error:
            raise RunError(f"{best} cannot be read: {first_line(error)}") from None
        return Weights(best.parent, step, "best")
    if which not in choices:
        raise RlzooError(f"--checkpoint: {folder.path} has no {which!r} ({known})")
    path = there[-1 if which == "last" else steps.index(int(which))]
    from rlzoo.train.checkpoint import damage

    fault = damage(path)
    if fault:
        raise RunError(f"checkpoint {path} is damaged ({fault})")
    return Weights(path, step_of(path), "checkpoint", raw=True)
