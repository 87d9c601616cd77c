"""What a run shows in a notebook while it goes: one output of HTML, drawn again in its place.

It needs no widgets and no script. It draws every half second at first and every ten seconds in a
long run, never for more than a hundredth of the time, and draws at most some hundred points.
"""

import sys
import time
from typing import Any

from rlzoo.api.picture import bar, block, curve, finite, numbers, text
from rlzoo.errors import first_line
from rlzoo.runs.display import Silent
from rlzoo.runs.metrics import REWARD, evaluation_text

LEAST, MOST = 0.5, 10.0  # seconds between two drawings
SHARE = 0.01  # of the time, at most, for drawing
NOTES = 4  # that stay on screen


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which shows HTML; IPython in a terminal is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Notebook(Silent):
    """Progress, curve, numbers and notes of one run; as a context it says how that ended."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.title, self.where, self.doing, self.left = "", "", "loading the models", ""
        self.rewards: list[tuple[float, float]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self.notes: list[str] = []
        self.progress = 0.0
        self.first: float | None = None  # progress after the first step, where time is counted from
        self.began = self.next = time.monotonic()

    def start(self, plan: Any, folder: Any) -> None:
        config = plan.recipe.config
        model = config.model.name or config.model.path
        self.title = f"{plan.recipe.name}: {model} on {plan.task_name}"
        self.where = str(folder.path)
        self.draw()

    def step(self, line: dict[str, Any], progress: float) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.began = progress, now
        elif progress > self.first:
            left = (now - self.began) / (progress - self.first) * (1 - progress)
            self.left = f", {left:.0f} s left" if left < 90 else f", {left / 60:.0f} min left"
        reward = finite(line.get(REWARD))
        if reward is not None:
            self.rewards.append((line["step"], reward))
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

    def finish(self, summary: dict[str, Any], folder: Any) -> None:
        self.progress, self.left = 1.0, ""
        self.doing = f"finished in {summary['seconds']:.0f} s"
        self.draw()

    def __enter__(self) -> "Notebook":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or self.handle is None:
            return
        stopped = isinstance(error, KeyboardInterrupt)
        self.doing = f"{first_line(error) if str(error) else 'interrupted'}"
        if not stopped:
            self.doing = f"failed: {self.doing}"
        if self.where:
            self.notes.append(f"rlzoo.resume({self.where!r}) goes on")
        self.left = ""
        self.draw()

    def draw(self) -> None:
        from IPython.display import HTML, display

        began = time.monotonic()
        page = HTML(self.html())
        if self.handle is None:
            self.handle = display(page, display_id=True)
        else:
            self.handle.update(page)
        now = time.monotonic()
        wait = min(MOST, max(LEAST, (now - self.began) / 100))
        self.next = now + max(wait, (now - began) / SHARE)

    def html(self) -> str:
        """The output as it is now."""
        step = self.last.get("step")
        at = f"step {step}{self.left}" if step else ""
        parts = [
            f"<b>{text(self.title)}</b> <span style='opacity:.65'>{text(self.where)}</span>",
            bar(self.progress),
            f"<div>{text('; '.join(filter(None, [at, self.doing])))}</div>",
            numbers(self.last),
            curve(self.rewards, self.evaluations),
        ]
        if self.evaluations:
            line = self.evaluations[-1]
            said = f"held-out at step {line['step']}: {evaluation_text(line)}"
            parts.append(f"<div>{text(said)}</div>")
        parts += [f"<div style='opacity:.75'>{text(note)}</div>" for note in self.notes[-NOTES:]]
        return block(parts)
