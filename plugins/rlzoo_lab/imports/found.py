"""A run as it was found in another trainer's files, before it is written as a run folder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Values = dict[str, float]
DEEPEST = 32  # mappings in each other


@dataclass(frozen=True)
class Row:
    """Metrics of one step, by the trainer's names. run: its run's name, where a file has several;
    empty: it is of all of them."""

    step: int
    values: Values
    run: str = ""


@dataclass(frozen=True)
class Tokens:
    """A response as tokens, arrays (T,); it begins with the first token that the policy chose.

    ids: int64; mask: 1 where the policy chose; prompt: ids (P,); columns: those of a batch, by
    rlzoo's names, as float32. NaN: the trainer recorded that a number was not finite.
    """

    prompt: Any
    ids: Any
    mask: Any
    columns: dict[str, Any]

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Equal for two records of a response."""
        return self.prompt.tobytes(), self.ids.tobytes()


@dataclass(frozen=True)
class Sample:
    """A prompt and a response. score, advantage: in the reward's unit; None where not recorded.

    tokens: the response token by token; group: equal for responses to one draw of a prompt;
    episode: equal for the turns of one episode, where each turn is a row; terms: each reward.
    """

    step: int
    prompt: str
    response: str
    score: float | None = None
    advantage: float | None = None
    answer: Any = None
    tokens: Tokens | None = None
    group: Any = None
    truncated: bool | None = None
    episode: Any = None
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Found:
    """The contents of a run's files, with the trainer's own names.

    tokens: (step, a response) of files that have no texts. settings: dotted key -> value. files:
    path -> its kind. formats: whose they are. notes: for the user. step: the name of steps in
    lines and tables, where it is given; stepped: those that were found. placed: lines without a
    step of their own.
    """

    rows: list[Row] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    tokens: list[tuple[int, Tokens]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    formats: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    planned: int | None = None  # steps that the trainer meant to take
    step: str = ""
    stepped: set[str] = field(default_factory=set)
    placed: int = 0

    def take(self, parts: Iterable[Row | Sample | tuple[int, Tokens]]) -> None:
        """Add rows, samples and (step, tokens)."""
        for part in parts:
            if isinstance(part, Row):
                self.rows.append(part)
            elif isinstance(part, Sample):
                self.samples.append(part)
            else:
                self.tokens.append(part)


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Items by their key, in the order in which keys come first."""
    out: dict[Any, list[T]] = {}
    for item in items:
        out.setdefault(key(item), []).append(item)
    return out


def per_rollout(steps: list[Row], rollouts: set[int], found: Found) -> list[Row]:
    """Rows of optimizer steps, several to a rollout, as those of rollouts: their means."""
    each = max(1, round(len({row.step for row in steps}) / max(1, len(rollouts))))
    first = int(min(rollouts, default=0) == min((row.step for row in steps), default=0) == 1)
    out = []
    for at, rows in grouped(steps, lambda row: (row.step - first) // each + first).items():
        for name in dict.fromkeys(k for row in rows for k in row.values):
            numbers = [row.values[name] for row in rows if name in row.values]
            mean = numbers[0] if len(numbers) == 1 else sum(numbers) / len(numbers)
            out.append(Row(at, {name: mean}, rows[0].run))
    if each > 1:
        found.notes.append(
            f"there are {each} optimizer steps per rollout; metrics are means over them"
        )
    return out


def flat(tree: Mapping[str, Any], above: str = "", split: str = ".") -> dict[str, Any]:
    """Nested mappings by dotted keys; what is nested too deeply, and wandb's tables and images,
    stays as it is."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping) and above.count(split) < DEEPEST
        if nested and "_type" not in value:
            out |= flat(value, f"{above}{key}{split}", split)
        else:
            out[f"{above}{key}"] = value
    return out
