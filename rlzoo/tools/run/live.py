"""What a run shows while it goes: a live panel in a terminal, plain lines elsewhere."""

import time
from collections import deque
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rlzoo.runs.display import Silent
from rlzoo.runs.metrics import evaluation_text
from rlzoo.show.curve import sparkline
from rlzoo.tools.run.tables import closing_tables

SHOWN = (
    ("reward", "reward/mean", "{:.3f}"),
    ("KL to ref", "actor/ref_kl_per_response", "{:.3f}"),
    ("entropy", "actor/entropy", "{:.3f}"),
    ("explained var", "critic/vf_explained_var", "{:.2f}"),
    ("clip fraction", "actor/pg_clipfrac", "{:.3f}"),
    ("length", "response_length/mean", "{:.1f}"),
    ("tokens/s", "perf/tokens_per_second", "{:,.0f}"),
)


class Plain(Silent):
    """A line now and then, for logs and pipes."""

    def __init__(self, console: Console, every: float = 2.0):
        self.console = console
        self.every = every
        self._last = 0.0

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def start(self, plan: Any, folder: Any) -> None:
        self._print(f"{headline(plan)} -> {folder.path}")

    def step(self, line: dict[str, Any], progress: float) -> None:
        now = time.monotonic()
        if now - self._last < self.every and progress < 1:
            return
        self._last = now
        shown = "  ".join(f"{n} {f.format(line[k])}" for n, k, f in SHOWN if k in line)
        self._print(f"step {line['step']:>4} {progress:4.0%}  {shown}")

    def evaluation(self, line: dict[str, Any]) -> None:
        self._print(f"step {line['step']:>4} held-out {evaluation_text(line)}")

    def note(self, text: str) -> None:
        self._print(text)

    def finish(self, summary: dict[str, Any], folder: Any) -> None:
        for table in closing_tables(summary, folder, self.console.width):
            self.console.print(table)


class Panelled(Silent):
    """A panel that is redrawn: progress, a sparkline of the reward, the metrics that matter."""

    def __init__(self, console: Console):
        self.console = console
        self.rewards: deque[float] = deque(maxlen=512)
        self.last: dict[str, Any] = {}
        self.evaluated = Text("")
        self.title = ""
        self.began = time.monotonic()
        self.first_progress: float | None = None
        self.left = ""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            expand=True,
        )
        self.task = self.bar.add_task("loading", total=1.0, left="")
        self.live = Live(self, console=console, refresh_per_second=8, transient=True)

    def start(self, plan: Any, folder: Any) -> None:
        self.title = f"{headline(plan)} -> {folder.path}"
        self.live.start()

    def step(self, line: dict[str, Any], progress: float) -> None:
        self.rewards.append(line["reward/mean"])
        self.last = line
        now = time.monotonic()
        if self.first_progress is None:
            self.first_progress, self.began = progress, now
        done = progress - self.first_progress
        if done > 0:
            left = (now - self.began) / done * (1 - progress)
            self.left = f"{left:.0f} s left"
        self.bar.update(
            self.task, completed=progress, left=self.left, description=f"step {line['step']}"
        )

    def evaluation(self, line: dict[str, Any]) -> None:
        self.evaluated = Text(f"held-out at step {line['step']}: {evaluation_text(line)}")

    def note(self, text: str) -> None:
        self.live.console.print(Text(text, style="yellow"))

    def __rich__(self) -> Panel:
        numbers = Table.grid(padding=(0, 2))
        cells = [(n, f.format(self.last[k])) for n, k, f in SHOWN if k in self.last]
        for start in range(0, len(cells), 4):
            row = cells[start : start + 4]
            numbers.add_row(*(Text.assemble((f"{n} ", "dim"), v) for n, v in row))
        width = max(10, self.console.width - 16)
        curve = Text.assemble(("reward ", "dim"), (sparkline(self.rewards, width), "green"))
        return Panel(Group(self.bar, curve, numbers, self.evaluated), title=Text(self.title))

    def finish(self, summary: dict[str, Any], folder: Any) -> None:
        self.close()
        for table in closing_tables(summary, folder, self.console.width):
            self.console.print(table)

    def close(self) -> None:
        self.live.stop()


def headline(plan: Any) -> str:
    config = plan.recipe.config
    return f"{plan.recipe.name}: {config.model.name or config.model.path} on {plan.task_name}"
