"""The data of a trace: one response, a row per token, the source of each number. No torch here."""

from dataclasses import dataclass, field
from typing import Any

Numbers = list[float | None]  # one per response token; None where the policy did not choose it

CREDITED = ("raw_advantages", "advantages", "returns")  # columns that an estimator makes

TYPED = "typed numbers"  # the source of a trace that no model made


@dataclass
class Token:
    """A response token: its position, its text, and whether the policy chose it."""

    t: int
    text: str
    action: bool


@dataclass
class Derivation:
    """How the numbers of one column are computed: a name, a formula, and a line for each number."""

    column: str
    formula: str
    lines: list[str]


@dataclass
class Credit:
    """One estimator's columns for the response. `columns` and `clipped` have its length."""

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
    """A response, token by token. `columns` have the names of the batch's columns."""

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
