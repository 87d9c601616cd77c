"""What a trace is: one response, a row per token, each number with its source.  No torch here."""

from dataclasses import dataclass, field
from typing import Any

Numbers = list[float | None]  # one per response token; None where the policy did not choose it

CREDITED = ("raw_advantages", "advantages", "returns")  # columns that an estimator makes

TYPED = "typed numbers"  # the source of a trace that no model made


@dataclass
class Token:
    """A response token: its place, its text, and whether the policy chose it."""

    t: int
    text: str
    action: bool


@dataclass
class Derivation:
    """How the numbers of one column come about: a formula, what it stands for, a line each."""

    column: str
    formula: str
    lines: list[str]


@dataclass
class Credit:
    """One estimator's columns for the response. `columns` and `clipped` are as long as it."""

    label: str
    name: str
    options: dict[str, Any]
    summary: str
    columns: dict[str, Numbers]
    clipped: list[str] | None
    whitened: str
    derivations: list[Derivation] = field(default_factory=list)


@dataclass
class Trace:
    """A response, token by token. `columns` have the names of the batch's."""

    source: str
    row: int
    rows: int
    prompt: str | None
    answer: Any
    score: float | None
    tokens: list[Token]
    columns: dict[str, Numbers]
    bootstrap: float | None
    ending: str
    credits: list[Credit]
    derivations: list[Derivation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
