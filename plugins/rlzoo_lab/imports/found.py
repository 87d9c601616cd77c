"""A run as it was found in another trainer's files, before it is written as a run folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Values = dict[str, float]


@dataclass(frozen=True)
class Row:
    """Metrics of one step, by the trainer's names."""

    step: int
    values: Values


@dataclass(frozen=True)
class Sample:
    """A prompt and a response. score, advantage: in the reward's unit; None where not recorded."""

    step: int
    prompt: str
    response: str
    score: float | None = None
    advantage: float | None = None
    answer: Any = None


@dataclass(frozen=True)
class Tokens:
    """The trained tokens of one response, as prime-rl exports them. advantages (T,) in units of the
    loss; trained, sampled: log-probabilities (T,) in nats of trainer and sampler."""

    step: int
    advantages: list[float]
    trained: list[float]
    sampled: list[float]


@dataclass
class Found:
    """The contents of a run's files, with the trainer's own names.

    settings: dotted key -> value. files: path -> its format. notes: for the user.
    """

    rows: list[Row] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    planned: int | None = None  # steps that the trainer meant to take


def numbers(values: Mapping[str, Any]) -> Values:
    """The metrics among the values of a line: numbers, NaN and infinities included."""
    return {k: v for k, v in values.items() if type(v) in (int, float)}


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mappings by dotted keys."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{above}{key}.")
        else:
            out[f"{above}{key}"] = value
    return out
