"""Training, resuming and opening a run as an object."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlzoo.cli.run.command import make_display
from rlzoo.cli.run.lines import SHOWN
from rlzoo.errors import RunError, UsageError, nearest
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.runs.display import Silent
from rlzoo.runs.folder import RunFolder, open_folder
from rlzoo.runs.metrics import REWARD, SCORE_STD, is_evaluation
from rlzoo.runs.store import copy_of
from rlzoo.train import start
from rlzoo_lab.api import verbs
from rlzoo_lab.api.arguments import Overrides, as_words
from rlzoo_lab.api.document import Found, frame_of
from rlzoo_lab.api.notebook import Notebook, in_notebook
from rlzoo_lab.data.record import Record, failure, read_record
from rlzoo_lab.view.blocks import Text
from rlzoo_lab.view.display import run as shown
from rlzoo_lab.view.figure import drawn
from rlzoo_lab.view.html import notebook

SAMPLES = 6  # that a run shows of itself
KEPT = {REWARD, SCORE_STD, *(metric for _, metric, _ in SHOWN)}  # what it shows of its steps


@dataclass(repr=False)
class Run:
    """A run: its folder and its files. A notebook shows it as HTML.

    path: the run folder. summary: contents of summary.json; empty while the run is not finished.

    Files are read on first use, without loading a model; `load_run` opens the folder again. Every
    function that takes a path also takes a run: `rlzoo.compare(a, b)`.
    """

    path: Path
    summary: dict[str, Any]

    def __post_init__(self) -> None:
        self._folder = RunFolder(Path(self.path).absolute())  # wherever one goes meanwhile

    def __fspath__(self) -> str:
        """The path as the caller wrote it, if it still leads to the folder."""
        same = Path(self.path).absolute() == self._folder.path
        return str(self.path if same else self._folder.path)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """A dict for each line of metrics.jsonl, steps and evaluations in chronological order."""
        return list(self._folder.lines("metrics.jsonl"))

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """A dict for each training step, metric -> number; docs/columns.md has names and units."""
        return [line for line in self.metrics if not is_evaluation(line)]

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """A dict for each evaluation on held-out prompts, metric -> number."""
        return [line for line in self.metrics if is_evaluation(line)]

    @cached_property
    def samples(self) -> list[dict[str, Any]]:
        """A dict for each saved response: step, prompt, response, answer, score,
        truncated."""
        return list(self._folder.lines("samples.jsonl"))

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """Every setting, resolved, as a tree of dicts. Raises RunError if it is damaged."""
        return self._folder.recipe()

    @property
    def state(self) -> str:
        """`finished`, `failed: ...` or `unfinished`."""
        if self.summary:
            return "finished"
        reason = failure(self._folder.path)
        return f"failed: {reason}" if reason else "unfinished"

    def frame(self, what: str = "steps") -> Any:
        """`steps`, `evaluations` or `samples` as a pandas DataFrame. Raises UsageError
        if pandas is not installed."""
        if what not in ("steps", "evaluations", "samples"):
            raise UsageError(f"frame: must be steps, evaluations or samples. Got {what!r}")
        rows = frame_of(getattr(self, what))
        return rows.set_index("step") if what != "samples" and len(rows) else rows

    def plot(self, *metrics: str) -> Any:
        """A matplotlib Figure of the given metrics, one below the other; by default the reward and
        the held-out scores and their 95 % intervals. Raises UsageError for a metric that the run
        does not have."""
        record = read_record(self._folder.path)
        known = record.steps.names()
        for name in metrics:
            if name not in known:
                raise UsageError(f"plot: no metric {name!r} in {self.path}{nearest(name, known)}")
        if metrics:
            return drawn([shown.curve(record.points(name), (), name) for name in metrics])
        return drawn([shown.curve(record.points(REWARD), record.evaluations)])

    def trace(self, row: int = 0, overrides: Overrides = (), **options: Any) -> Found:
        """One response, token by token: `rlzoo.trace(run, overrides, row=row, ...)`."""
        return verbs.trace(self, overrides, row=row, **options)

    def evaluate(self, overrides: Overrides = (), **options: Any) -> Found:
        """Evaluate its policy: `rlzoo.evaluate(run, overrides, ...)`."""
        return verbs.evaluate(self, overrides, **options)

    def doctor(self) -> Found:
        """The run's faults, with a remedy for each: `rlzoo.doctor(run)`."""
        return verbs.doctor(self)

    def report(self, out: str | os.PathLike[str] | None = None) -> Found:
        """Write its page to `out`, by default report.html in its folder: `rlzoo.report(run,
        out)`."""
        return verbs.report(self, out)

    def export(self, folder: str | os.PathLike[str], **options: Any) -> Found:
        """Write its model as a transformers folder: `rlzoo.export(run, folder, ...)`."""
        return verbs.export(self, folder, **options)

    @cached_property
    def _record(self) -> Record:
        """The little of it that is shown: a run of a million steps fits, too."""
        return read_record(self._folder.path, wanted=KEPT.__contains__)

    def __repr__(self) -> str:
        n = len(self._record.steps)
        done = f"{n} step{'s' * (n != 1)}"
        what, held = shown.held_out(self._record.evaluations)
        score = (
            f", {what} {' -> '.join(f'{h[1]:.3f}' for h in [held[0], held[-1]])}" if held else ""
        )
        return f"<Run {str(self.path)!r}: {self.state}, {done}{score}>"

    def _repr_html_(self) -> str:
        said = {k: self.summary.get(k) for k in ("recipe", "model", "task", "estimator", "seed")}
        title = ", ".join(f"{k} {v}" for k, v in said.items() if v is not None)
        seconds = shown.finite(self.summary.get("seconds"))
        steps, evaluations = self._record.steps, self._record.evaluations
        rows = deque(self._folder.lines("samples.jsonl"), SAMPLES)
        state = [self.state, f"{len(steps)} steps"]
        state += [] if seconds is None else [f"{seconds:.0f} s"]
        if self.state == "unfinished":
            state.append(f"rlzoo.resume({str(self.path)!r}) continues the run")
        return notebook([
            Text(f"Run {self.path}: {title}", "strong"),
            Text(", ".join(state), "faint"),
            shown.curve(self._record.points(REWARD), evaluations),
            *shown.scores(evaluations),
            *([shown.numbers(steps[-1])] if steps else []),
            *([shown.samples(rows)] if rows else []),
        ])  # fmt: skip


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open a run folder, finished or not; no model is loaded or required.

    Raises RunError if the folder is not a run, or if its summary is damaged.
    """
    path = copy_of(path)
    if (path / "sweep.json").is_file():
        runs = sorted(p.parent.name for p in path.glob("*/recipe.yaml"))
        raise RunError(f"{path} is a sweep: pass it to compare, or one of {runs} to load_run")
    folder = open_folder(path)
    return Run(folder.path, folder.summary())


def run(
    recipe: str,
    overrides: Overrides | None = None,
    *,
    zoo: Zoo | None = None,
    display: Silent | bool | None = None,
    store: str | None = None,
    **keys: Any,
) -> Run:
    """Train as `rlzoo run recipe=RECIPE OVERRIDES...` does, and write a run folder.

    recipe: the name or the file of a recipe. overrides: words of the command line,
        ["estimator.lam=0.9"], or a mapping, {"estimator.lam": 0.9}. keys: more overrides, lam=0.9.
    zoo: the available components; default: those that `load_zoo()` finds.
    display: True shows the progress, False does not; the default shows it only in a notebook. Can
        also be an object with the methods of `rlzoo.runs.display.Silent`.
    store: a URL to which the folder is also copied after each checkpoint: "s3://bucket/a".

    Ctrl-C, SIGTERM or a notebook's stop button ends the run after its current step with a
    checkpoint and raises KeyboardInterrupt; `rlzoo.resume(path)` resumes it. Raises RecipeError
    (before any model loads), ComponentError, RunError, StoreError.
    """
    zoo = zoo or load_zoo()
    words = [f"recipe={recipe}", *as_words(overrides), *as_words(keys)]
    composed = compose(words, zoo)
    with _shown(display) as made:
        return Run(*start.start(composed, zoo, made, store))


def resume(
    path: str | os.PathLike[str],
    *,
    steps: int | None = None,
    zoo: Zoo | None = None,
    display: Silent | bool | None = None,
    trust_remote_code: bool = False,
    dir: str | Path | None = None,
    store: str | None = None,
) -> Run:
    """Resume an interrupted run from its last complete checkpoint, as `rlzoo resume` does.

    path: the run's folder, or the URL of its store. steps: a new `train.steps`, up to which a
        finished run continues, too. zoo, display: as in `run`. trust_remote_code:
        run the model's own code, regardless of the recipe's setting. dir: the folder in which a run
        from a URL continues; default: its name under runs/. store: the URL of the store of a run
        given by its folder. Without steps, returns a finished run without training.
        Raises RunError if this is not a run.
    """
    more: dict[str, Any] = {"trust_remote_code": trust_remote_code, "dir": dir, "store": store}
    with _shown(display) as made:
        return Run(*start.resume(os.fspath(path), steps=steps, zoo=zoo, display=made, **more))


@contextmanager
def _shown(display: Silent | bool | None) -> Iterator[Silent]:
    """The display that is meant; one that is made here is closed here."""
    if display is None:
        display = in_notebook()
    if display is True and in_notebook():
        with Notebook() as page:
            yield page
    elif display is True:
        made = make_display()
        try:
            yield made
        finally:
            made.close()
    else:
        yield Silent() if display is False else display
