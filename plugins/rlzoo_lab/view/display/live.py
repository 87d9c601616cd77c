"""The display during training: a live panel in a terminal, plain lines otherwise."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from rlzoo.cli.run.lines import Lines, cells, headline
from rlzoo.recipe.plan import Plan
from rlzoo.runs.display import STOPPING, Silent
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import REWARD, evaluation_text
from rlzoo_lab.view.display.tables import closing
from rlzoo_lab.view.numbers import sparkline
from rlzoo_lab.view.terminal import rendered


def curve_text(rewards: Sequence[float], width: int) -> Text:
    """`reward 0.117 ▁▂▃▅▇ 0.395`"""
    if not rewards:
        return Text("")
    first, last = f"{rewards[0]:.3f}", f"{rewards[-1]:.3f}"
    room = max(10, width - len(f"reward {first}  {last}"))
    bars = sparkline(rewards, min(room, 100))
    return Text.assemble(("reward ", "dim"), f"{first} ", (bars, "green"), f" {last}")


def packed(pairs: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """`name value name value`, with as many on a line as fit."""
    lines: list[Text] = []
    for name, value in pairs:
        one = Text.assemble((f"{name} ", "dim"), value)
        if lines and len(lines[-1]) + 3 + len(one) <= width:
            lines[-1] = Text.assemble(lines[-1], "   ", one)
        else:
            lines.append(one)
    return lines


@dataclass
class Plain(Lines):
    """Lines, the curve of the reward and the closing tables."""

    rewards: list[float] = field(default_factory=list)

    def step(self, line: dict[str, float], progress: float) -> None:
        self.rewards.append(line[REWARD])
        super().step(line, progress)

    def finish(self, summary: dict[str, Any], folder: RunFolder) -> None:
        self.note(curve_text(self.rewards, self.console.width))
        for part in rendered(closing(summary, folder), self.console):
            self.note(part)


class Panelled(Silent):
    """A panel that is redrawn: progress, a sparkline of the reward, and the main metrics. Its
    last state stays on the screen."""

    def __init__(self, console: Console):
        self.console = console
        self.rewards: deque[float] = deque(maxlen=4096)
        self.last: dict[str, Any] = {}
        self.evaluated = Text("")
        self.title, self.facts, self.doing = "", "", ""
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
        self.live = Live(self, console=console, refresh_per_second=8)

    def start(self, plan: Plan, folder: RunFolder) -> None:
        self.title = f"{headline(plan)} -> {folder.path}"
        self.live.start()

    def phase(self, name: str) -> None:
        if self.doing != STOPPING:
            self.doing = name

    def ready(self, text: str) -> None:
        self.facts = text

    def stopping(self) -> None:
        self.doing = STOPPING  # shown when the panel is next drawn

    def step(self, line: dict[str, float], progress: float) -> None:
        self.rewards.append(line[REWARD])
        self.last = line
        now = time.monotonic()
        if self.first_progress is None:
            self.first_progress, self.began = progress, now
        done = progress - self.first_progress
        self.left = ""
        if done > 0 and progress < 1:
            left = (now - self.began) / done * (1 - progress)
            self.left = f"{left:.0f} s left"
        self.bar.update(
            self.task, completed=progress, left=self.left, description=f"step {line['step']}"
        )

    def evaluation(self, line: dict[str, float]) -> None:
        self.evaluated = Text(f"held-out at step {line['step']}: {evaluation_text(line)}")

    def note(self, text: str) -> None:
        self.live.console.print(Text(text, style="yellow"))

    def __rich__(self) -> Panel:
        width = self.console.width - 2  # room for the ^C that a terminal writes after the panel
        numbers = [pair for pair in cells(self.last) if pair[0] != "reward"]  # the curve shows it
        below = Text("   ".join(filter(None, (self.doing, self.facts))), style="dim")
        room = width - 4
        curve = curve_text(self.rewards, room)
        texts = [curve, *packed(numbers, room), self.evaluated, below]
        shown: list[Any] = [self.bar, *(text for text in texts if text)]
        title = Text(self.title)
        title.truncate(room - 2, overflow="ellipsis")  # else the panel would grow with it
        return Panel(Group(*shown), title=title, width=width)

    def finish(self, summary: dict[str, Any], folder: RunFolder) -> None:
        self.doing = ""
        self.close()
        for part in rendered(closing(summary, folder), self.console):
            self.console.print(part)

    def close(self) -> None:
        self.live.stop()
