"""The display of a run in a notebook: one HTML output that is updated in place.

It needs no widgets and no script. It redraws every half second at first and every ten seconds in a
long run, uses at most a hundredth of the time, and draws at most a hundred points.
"""

import sys
import time
import warnings
from array import array
from typing import Any

from rlzoo.errors import first_line
from rlzoo.recipe.plan import Plan
from rlzoo.runs.display import Silent
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import REWARD, evaluation_text
from rlzoo_lab.view.blocks import Block, Text
from rlzoo_lab.view.display.run import curve, finite, numbers
from rlzoo_lab.view.html import notebook

LEAST, MOST = 0.5, 10.0  # seconds between two drawings
SHARE = 0.01  # of the time, at most, for drawing
NOTES = 4  # that stay on screen


def in_notebook() -> bool:
    """Whether this is a notebook kernel, which can show HTML; IPython in a terminal cannot."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


if in_notebook():  # tqdm, which transformers imports, needs widgets that are not needed here
    warnings.filterwarnings("ignore", message="IProgress not found")


class Notebook(Silent):
    """Progress, curve, numbers and notes of one run; as a context manager, it shows how the run
    ended."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.title, self.where, self.facts = "", "", ""
        self.doing, self.left, self.asked = "loading the models", "", ""
        self.steps, self.rewards = array("d"), array("d")
        self.evaluations: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self.notes: list[str] = []
        self.progress = 0.0
        self.first: float | None = None  # progress after the first step, where time is counted from
        self.began = self.next = time.monotonic()

    def start(self, plan: Plan, folder: RunFolder) -> None:
        config = plan.recipe.config
        model = config.model.name or config.model.path
        self.title = f"{plan.recipe.name}: {model} on {plan.task_name}"
        self.where = str(folder.path)
        self.draw()

    def phase(self, name: str) -> None:
        self.doing = name
        if time.monotonic() >= self.next:
            self.draw()

    def ready(self, text: str) -> None:
        self.facts = text

    def stopping(self) -> None:
        self.asked = "; stopping after this step"
        super().stopping()

    def step(self, line: dict[str, Any], progress: float) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.began = progress, now
        elif progress > self.first:
            left = (now - self.began) / (progress - self.first) * (1 - progress)
            self.left = f", {left:.0f} s left" if left < 90 else f", {left / 60:.0f} min left"
        reward = finite(line.get(REWARD))
        if reward is not None:
            self.steps.append(line["step"])
            self.rewards.append(reward)
        self.last, self.progress, self.doing = line, progress, ""
        if now >= self.next:
            self.draw()

    def evaluation(self, line: dict[str, Any]) -> None:
        self.evaluations.append(line)
        self.doing = ""
        self.draw()

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.draw()

    def finish(self, summary: dict[str, Any], folder: RunFolder) -> None:
        self.progress, self.left = 1.0, ""
        self.doing = f"finished in {summary['seconds']:.0f} s"
        self.draw()

    def __enter__(self) -> "Notebook":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or self.handle is None:
            return
        said = first_line(error) if str(error) else "interrupted"
        again = f"rlzoo.resume({self.where!r}) continues the run"
        self.left = self.asked = ""
        if isinstance(error, KeyboardInterrupt):
            self.doing = f"{said}; {again}"
            # IPython's way to show an error: a user who pressed stop needs no traceback.
            error._render_traceback_ = lambda: [self.doing]  # type: ignore[attr-defined]
        else:
            self.doing = f"failed: {said}"
        self.draw()

    def draw(self) -> None:
        from IPython.display import display

        began = time.monotonic()
        page = {"text/html": self.html(), "text/plain": f"{self.title}: {self.now()}"}
        if self.handle is None:
            self.handle = display(page, raw=True, display_id=True)
        else:
            self.handle.update(page, raw=True)
        now = time.monotonic()
        wait = min(MOST, max(LEAST, (now - self.began) / 100))
        self.next = now + max(wait, (now - began) / SHARE)

    def now(self) -> str:
        """The progress in words."""
        at = f"step {self.last['step']}{self.left}{self.asked}" if self.last else ""
        return "; ".join(filter(None, [at, self.doing]))

    def html(self) -> str:
        """The current output."""
        beside = ", ".join(filter(None, [self.facts, self.where]))
        told = ""
        if self.evaluations:
            line = self.evaluations[-1]
            told = f"held-out at step {line['step']}: {evaluation_text(line)}"
        points = list(zip(self.steps, self.rewards, strict=True))
        shown: list[Block] = [Text(f"{self.title} {beside}"), Text(self.now()), numbers(self.last),
                 curve(points, self.evaluations), Text(told)]  # fmt: skip
        notes = [Text(note, "faint") for note in self.notes[-NOTES:]]
        bar = (
            f'<progress value="{self.progress:.3f}" style="width:100%;max-width:35rem"></progress>'
        )
        return bar + notebook([*shown, *notes])
