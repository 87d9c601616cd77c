import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rlzoo.errors import RecipeError
from rlzoo.recipe.files import read_layer
from rlzoo.runs.folder import RunFolder


@dataclass
class Finding:
    """What is wrong, the numbers it rests on, and what to try."""

    severity: str
    what: str
    advice: str
    evidence: dict[str, Any]
    rule: str = ""


@dataclass
class Record:
    """What a run wrote down: a mapping per training step, one per evaluation, its recipe (dotted
    key -> value), its summary."""

    steps: list[dict[str, Any]]
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)

    def points(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of a metric where it is finite."""
        found = ((line["step"], line.get(name)) for line in self.steps)
        return [(n, float(v)) for n, v in found if isinstance(v, int | float) and math.isfinite(v)]

    def series(self, name: str) -> list[float]:
        """The values of `points`."""
        return [value for _, value in self.points(name)]

    def has(self, name: str) -> bool:
        return any(name in line for line in self.steps)

    def key(self, dotted: str, default: Any = None) -> Any:
        """A value of the recipe."""
        value = self.recipe.get(dotted)
        return default if value is None else value

    def spans(self, name: str) -> tuple[str, str]:
        """`steps 1 to 20`: where the first and the last third of a metric lie."""
        numbers = [n for n, _ in self.points(name)]

        def words(part: list[int]) -> str:
            return f"steps {part[0]} to {part[-1]}" if len(part) > 1 else f"step {part[0]}"

        return words(first(numbers)), words(last(numbers))

    @property
    def accuracy(self) -> float | None:
        """Of the last evaluation; None where the task has no notion of right."""
        found = [e["eval/accuracy"] for e in self.evaluations if "eval/accuracy" in e]
        return found[-1] if found else None

    @property
    def solved(self) -> bool:
        return self.accuracy is not None and self.accuracy >= 0.95

    @property
    def improved(self) -> bool:
        """Whether held-out prompts got better, by more than their intervals."""
        if len(self.evaluations) < 2:
            return False
        before, after = self.evaluations[0], self.evaluations[-1]
        what = "eval/accuracy" if "eval/accuracy" in after else "eval/score"
        return after.get(f"{what}_low", -math.inf) > before.get(f"{what}_high", math.inf)


def first(items: list) -> list:
    """The first third, at least one."""
    return items[: max(1, len(items) // 3)]


def last(items: list) -> list:
    """The last third, at least one."""
    return items[-max(1, len(items) // 3) :]


def trend(values: list[float]) -> tuple[float, float]:
    """(last third minus first third, standard error of that), by differences between neighbours:
    a slope does not count as noise."""
    gaps = [(b - a) ** 2 for a, b in itertools.pairwise(values)]
    variance = fmean(gaps) / 2 if gaps else 0.0
    n = max(1, len(values) // 3)
    return fmean(last(values)) - fmean(first(values)), math.sqrt(2 * variance / n)


def read(folder: RunFolder) -> tuple[Record, list[str]]:
    """A run's record, and what is missing or damaged in its folder."""
    troubles = []
    recipe: Mapping[str, Any] = {}
    try:
        recipe = read_layer(folder.path / "recipe.yaml").values
    except RecipeError as error:
        troubles.append(str(error))
    path = folder.path / "metrics.jsonl"
    lines: list[dict[str, Any]] = []
    if not path.exists():
        troubles.append("metrics.jsonl is not there: the run stopped before its first evaluation")
    else:
        try:
            lines = folder.read("metrics.jsonl")
            written = len(path.read_text(encoding="utf-8").splitlines())
        except UnicodeDecodeError as error:
            troubles.append(f"metrics.jsonl cannot be read: {error}")
            written = 0
        if written > len(lines):
            troubles.append(
                f"metrics.jsonl: line {len(lines) + 1} cannot be read; "
                f"{written - len(lines)} of {written} lines are left out"
            )
    summary: dict[str, Any] = {}
    try:
        summary = folder.summary()
    except ValueError as error:
        troubles.append(f"summary.json cannot be read: {error}")
    good = [line for line in lines if isinstance(line, dict) and "step" in line]
    steps = [line for line in good if not any(k.startswith("eval/") for k in line)]
    evaluations = [line for line in good if any(k.startswith("eval/") for k in line)]
    record = Record(steps, evaluations, recipe, summary)
    if not summary:
        done = steps[-1]["step"] if steps else 0
        planned = record.key("train.steps")
        of = f" of {planned}" if planned else ""
        troubles.append(
            f"the run is not finished: step {done}{of}; it may still be going, or "
            f"`rlzoo resume {folder.path}` goes on with it"
        )
    return record, troubles
