"""Selects the weights of a run: at its end, at its best evaluation, or from a checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError, RunError, first_line
from rlzoo.runs.disk import read_json
from rlzoo.runs.folder import RunFolder, open_folder, saved_steps, step_of
from rlzoo_lab.data.words import quoted


def open_own(path: str | Path, needed: str) -> RunFolder:
    """A run folder that rlzoo trained. Raises RunError if the run was imported, because then
    `needed` is missing, or if this is not a run's folder."""
    folder = open_folder(path)
    if whose := folder.summary().get("imported"):
        raise RunError(
            f"{path} was imported from {whose['from']} without {needed}", kind="imported"
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
        """Words that make a recipe start from these weights, if possible."""
        return [] if self.raw else [f"model.path={quoted(self.path)}"]

    def load_into(self, model: Any) -> None:
        """Load a checkpoint's weights into the run's policy; a model folder is already loaded."""
        if self.raw:
            from rlzoo.train.checkpoint import load_networks  # torch

            load_networks(self.path, {"actor": model})


def choose(folder: RunFolder, which: str | None) -> Weights:
    """`which`: best, last (for an unfinished run, its newest checkpoint) or the step of a
    checkpoint; None: the model at the end of a finished run."""
    summary = folder.summary()
    if which in (None, "last") and summary:
        if "steps" not in summary:
            raise RunError(f"{folder.path / 'summary.json'} cannot be read: it has no 'steps'")
        return Weights(folder.path / "model", summary["steps"], "model")
    there = saved_steps(folder.checkpoints)
    steps = [step_of(path) for path in there]
    best = folder.path / "best" / "best.json"
    choices = ["best"] * best.is_file() + ["last"] * bool(summary or steps) + [*map(str, steps)]
    known = f"available: {', '.join(choices)}" if choices else "there is none yet"
    if which is None:
        raise RunError(
            f"{folder.path} has not finished; choose a checkpoint with --checkpoint ({known})"
        )
    if which == "best":
        if not best.is_file():
            raise RunError(
                f"--checkpoint: {folder.path} has no best checkpoint; train with "
                f"checkpoint.best=true ({known})"
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
