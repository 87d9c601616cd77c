"""Progress of a run: an occasional line, for logs and pipes."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from rlzoo.format.text import say
from rlzoo.recipe.plan import Plan
from rlzoo.runs.display import Silent
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import (
    ENTROPY,
    EXPLAINED_VARIANCE,
    LENGTH,
    REF_KL_PER_RESPONSE,
    REWARD,
    SCORE_STD,
    evaluation_text,
)

SHOWN: tuple[tuple[str, str, str], ...] = (
    ("reward", REWARD, "{:.3f}"),
    ("KL to ref", REF_KL_PER_RESPONSE, "{:.3f}"),
    ("entropy", ENTROPY, "{:.3f}"),
    ("explained var", EXPLAINED_VARIANCE, "{:.2f}"),
    ("clip fraction", "actor/pg_clipfrac", "{:.3f}"),
    ("length", LENGTH, "{:.1f}"),
    ("tokens/s", "perf/tokens_per_second", "{:,.0f}"),
)


def cells(line: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """(name, value) of each number that is shown for a step."""
    for name, key, form in SHOWN:
        if key in line:
            # All responses score alike: what is left of the returns' variance is the KL's.
            idle = key == EXPLAINED_VARIANCE and line[key] <= 0 and line.get(SCORE_STD, 1) < 1e-8
            text = form.format(line[key])
            yield name, "nothing to explain" if idle else re.sub(r"^-(0\.0+)$", r"\1", text)


def headline(plan: Plan) -> str:
    model = plan.recipe.config.model
    return f"{plan.recipe.name}: {model.name or model.path} on {plan.task_name}"


@dataclass
class Lines(Silent):
    """Prints a step at most every `every` seconds, and each evaluation and note."""

    console: Console
    every: float = 2.0
    path: Path | str = "its folder"
    _last: float = 0.0

    def note(self, text: Any) -> None:
        """A line, or what rich renders. If the reader is gone or the disk is full, the run
        continues and reports it once."""
        if self.console.quiet:
            return
        self.console.print(text, markup=False, highlight=False, soft_wrap=isinstance(text, str))
        if self.console.quiet:
            say(f"rlzoo: output can no longer be printed; the run continues in {self.path}")

    def start(self, plan: Plan, folder: RunFolder) -> None:
        self.path = folder.path
        self.note(f"{headline(plan)} -> {folder.path}")

    ready = note

    def step(self, line: dict[str, float], progress: float) -> None:
        now = time.monotonic()
        if now - self._last < self.every and progress < 1:
            return
        self._last = now
        shown = "  ".join(f"{name} {value}" for name, value in cells(line))
        self.note(f"step {line['step']:>4} {progress:4.0%}  {shown}")

    def evaluation(self, line: dict[str, float]) -> None:
        self.note(f"step {line['step']:>4} held-out {evaluation_text(line)}")

    def finish(self, summary: dict[str, Any], folder: RunFolder) -> None:
        self.note(f"run folder: {folder.path}")
