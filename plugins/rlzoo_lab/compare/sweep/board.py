"""A sweep's display while it runs."""

import time
from typing import Any

from rlzoo.runs.disk import write_json
from rlzoo_lab.compare.sweep.plan import Job, Sweep


class Board:
    """A line for each run that ends and, in a terminal, one for each current run below."""

    def __init__(self, console: Any, sweep: Sweep, missing: int, workers: int):
        self.console, self.path = console, sweep.path
        self.runs, self.missing, self.workers = len(sweep.jobs), missing, workers
        self.ended, self.failures = 0, 0
        self.began = time.monotonic()
        self.shares: dict[str, float] = {}  # of the runs under way
        self.told: dict[str, dict[str, str]] = {}  # of each run: its place, its last news
        self.status = console.status("")

    def __enter__(self) -> "Board":
        there = self.runs - self.missing
        runs = f"{self.missing} run{'s' * (self.missing != 1)}"
        self.say(
            f"{runs}, {self.workers} at a time -> {self.path}"
            + (f" ({there} are already there)" if there else "")
        )
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.status.stop()

    def say(self, line: str, style: str = "") -> None:
        self.console.print(line, style=style, markup=False, highlight=False, emoji=False,
                           soft_wrap=not self.console.is_terminal)  # fmt: skip

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
        self.shares[job.name] = 0.0
        self.news(job, "phase", "loading")

    def news(self, job: Job, word: str, *rest: Any) -> None:
        told = self.told.setdefault(job.name, {})  # it may come before the run begins
        if word == "note":
            self.say(f"{job.name}: {rest[0]}", "yellow")
        elif word == "step":
            self.shares[job.name] = rest[0]
            told["phase"] = f"{rest[0]:.0%}  step {rest[1]}  reward {rest[2]:.3f}"
        else:
            told[word] = f"held-out {rest[0]}" if word == "evaluation" else rest[0]
        self.status.update(self.console.render_str(str(self), markup=False, emoji=False))

    def __str__(self) -> str:
        runs = ["  ".join([name, *self.told[name].values()]) for name in self.shares]
        return "\n".join([f"{self.count}  {self.left}", *runs])

    def done(self, job: Job, summary: dict[str, Any]) -> None:
        self._end(job)
        before, after = summary["eval_before"], summary["eval_after"]
        scores = f"{summary['eval_metric']} {before:.3f} -> {after:.3f}"
        where = f" on {place}" if (place := self.told.get(job.name, {}).get("place")) else ""
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
