"""A run as it was found in another trainer's files, before it is written as a run folder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rlzoo.errors import UsageError

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
class Sample:
    """A prompt and a response. score, advantage: in the reward's unit; None where not recorded.

    group: equal for responses to one draw of a prompt; episode: equal for the turns of one episode,
    where each turn is a row; terms: each reward.
    """

    step: int
    prompt: str
    response: str
    score: float | None = None
    advantage: float | None = None
    answer: Any = None
    group: Any = None
    truncated: bool | None = None
    episode: Any = None
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Found:
    """The contents of a run's files, with the trainer's own names.

    settings: dotted key -> value. files: path -> its kind. formats: whose they are. notes: for the
    user. step: the name of steps in lines and tables, where it is given; stepped: those that were
    found. placed: lines without a step of their own.
    """

    rows: list[Row] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    formats: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    planned: int | None = None  # steps that the trainer meant to take
    step: str = ""
    stepped: set[str] = field(default_factory=set)
    placed: int = 0


def the_one(option: str, wanted: str, names: list[str], exact: list[str], what: str) -> str:
    """The name that an option gives: that of `exact`, or else the only one that contains it."""
    hits = exact or [name for name in names if wanted in name]
    if len(hits) == 1:
        return hits[0]
    known = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    raise UsageError(f"{option}: {wanted!r} matches {len(hits)} {what}, not one (available: "
                     f"{known or 'none'})")  # fmt: skip


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
    """Nested mappings by dotted keys, but for those too deep and wandb's tables and images."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping) and above.count(split) < DEEPEST
        if nested and "_type" not in value:
            out |= flat(value, f"{above}{key}{split}", split)
        else:
            out[f"{above}{key}"] = value
    return out
