"""A sweep's display while it runs."""

import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlzoo.runs.disk import write_json
from rlzoo_lab.compare.sweep.plan import Job, Sweep


class Board:
    """A line for each run that ends and, in a terminal, a live table of the current runs below."""

    def __init__(self, console: Console, sweep: Sweep, missing: int, workers: int):
        self.console, self.path = console, sweep.path
        self.runs, self.missing, self.workers = len(sweep.jobs), missing, workers
        self.ended, self.failures = 0, 0
        self.began = time.monotonic()
        self.shares: dict[str, float] = {}  # of the runs under way
        self.cells: dict[str, list[str]] = {}  # of these: step, reward, held-out
        self.places: dict[str, str] = {}  # the machines that they are on, where there are several
        self.live = Live(self, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "Board":
        there = self.runs - self.missing
        self.say(
            f"{self.missing} runs, {self.workers} at a time -> {self.path}"
            + (f" ({there} are already there)" if there else "")
        )
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def say(self, line: str, style: str = "") -> None:
        self.console.print(Text(line, style=style), soft_wrap=not self.console.is_terminal)

    @property
    def progress(self) -> float:
        """The share of the missing runs that is done."""
        return (self.ended + sum(self.shares.values())) / self.missing

    @property
    def left(self) -> str:
        """The time left, estimated from the finished part."""
        if self.progress <= 0.01:
            return ""
        seconds = (time.monotonic() - self.began) * (1 / self.progress - 1)
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"

    @property
    def count(self) -> str:
        failures = f", {self.failures} failed" if self.failures else ""
        return f"{self.runs - self.missing + self.ended}/{self.runs} runs{failures}"

    def begin(self, job: Job) -> None:
        self.shares[job.name], self.cells[job.name] = 0.0, ["loading", "", ""]

    def news(self, job: Job, word: str, *rest: Any) -> None:
        cells = self.cells.setdefault(job.name, ["", "", ""])  # it may come before the run begins
        if word == "place":
            self.places[job.name] = rest[0]
        elif word == "note":
            self.say(f"{job.name}: {rest[0]}", "yellow")
        elif word == "step":
            self.shares[job.name] = rest[0]
            cells[:2] = f"step {rest[1]}", f"reward {rest[2]:.3f}"
        elif word == "evaluation":
            cells[2] = f"held-out {rest[0]}"

    def done(self, job: Job, summary: dict[str, Any]) -> None:
        self._end(job)
        before, after = summary["eval_before"], summary["eval_after"]
        scores = f"{summary['eval_metric']} {before:.3f} -> {after:.3f}"
        where = f" on {place}" if (place := self.places.get(job.name)) else ""
        took = f"{summary['seconds']:.0f} s{where}"
        self.say(f"{self.count}  {job.name}  {scores}  {took}  {self.left}")

    def failed(self, job: Job, reason: str) -> None:
        job.path.mkdir(parents=True, exist_ok=True)
        write_json(job.path / "failed.json", {"reason": reason})
        self.failures += 1
        self._end(job)
        self.say(f"{self.count}  {job.name}  failed: {reason}", "red")

    def _end(self, job: Job) -> None:
        self.ended += 1
        self.shares.pop(job.name, None)

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        width = self.console.width
        fits = 3 if width >= 100 else 1 if self.places and width < 80 else 2
        table.add_row(
            Text(self.count, style="bold"),
            ProgressBar(1.0, self.progress, width=20),
            Text(self.left, style="bold"),
        )
        for name, share in self.shares.items():
            step, *more = self.cells[name][:fits]
            place = [self.places.get(name, "")] if self.places else []
            cells = map(Text, (step, *place, *more))
            table.add_row(Text(name), ProgressBar(1.0, share, width=20), *cells)
        return table
