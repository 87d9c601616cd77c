"""Training rows: preferences, demonstrations or judged steps, from a file or a data set folder.

    preference      prompt, chosen, rejected        which of two responses is better
    demonstration   prompt, response                a response to imitate, or `completion`, or one
                                                    column `messages` that ends with it
    solution        prompt, completions, labels     the steps of a response, and which are right
    verdict         prompt, completion, label       a response, and whether it is right

A prompt is text or chat messages, `[{"role": "user", "content": ...}, ...]`; so may be a response,
which then ends with the assistant's message, after the messages of the prompt if it repeats them.
No torch here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rlzoo.data import Message, messages_of, read
from rlzoo.errors import DataError, in_short, nearest

Prompt = str | list[Message]


class Preference(NamedTuple):
    prompt: Prompt
    chosen: str
    rejected: str


class Demonstration(NamedTuple):
    prompt: Prompt
    response: str


class Solution(NamedTuple):
    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[bool, ...]


class Verdict(NamedTuple):
    prompt: Prompt
    response: str
    right: bool


Row = TypeVar("Row", Preference, Demonstration, Solution, Verdict)


class Pairs(NamedTuple, Generic[Row]):
    """The rows that were read, and how many were bad and skipped."""

    rows: list[Row]
    bad: int


@dataclass(frozen=True)
class Reader(Generic[Row]):
    """Reads rows of one kind from JSONL, Parquet, a folder or hub id that `datasets` reads.

    columns: the columns of a row. instead: other names of a column, tried where none is given.
    """

    columns: tuple[str, ...]
    parse: Callable[[Mapping[str, Any], Mapping[str, str]], Row]
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __call__(
        self,
        path: str | Path,
        names: Mapping[str, str | None] | None = None,
        *,
        split: str = "",
        on_bad_row: str = "stop",
    ) -> Pairs[Row]:
        """names: the names of the columns in the file. on_bad_row: stop (an error that names file
        and line) or skip (counted)."""
        rows: list[Row] = []
        bad, first = 0, ""
        for line in read(str(path), split=split):
            try:
                if line.values is None:
                    raise ValueError(line.fault)
                rows.append(self.parse(line.values, self._names(line.values, names or {})))
            except ValueError as error:
                if on_bad_row != "skip":
                    raise DataError(f"{line.place}: {error}") from None
                first = first or f" ({line.place}: {error})"
                bad += 1
        if not rows:
            raise DataError(f"{path}: no usable row{first}")
        return Pairs(rows, bad)

    def _names(self, row: Mapping[str, Any], given: Mapping[str, str | None]) -> dict[str, str]:
        def usual(name: str) -> str:
            return next((n for n in (name, *self.instead.get(name, ())) if n in row), name)

        return {name: given.get(name) or usual(name) for name in self.columns}


def _preference(row: Mapping[str, Any], names: Mapping[str, str]) -> Preference:
    chosen, rejected = (_column(row, names[n]) for n in ("chosen", "rejected"))
    prompt, better = _split(row, names, chosen, names["chosen"])
    other, worse = _split(row, names, rejected, names["rejected"])
    if prompt != other:
        raise ValueError(f"{names['chosen']!r} and {names['rejected']!r} answer different prompts")
    if better == worse:
        raise ValueError(f"{names['chosen']!r} and {names['rejected']!r} are the same")
    return Preference(prompt, better, worse)


def _demonstration(row: Mapping[str, Any], names: Mapping[str, str]) -> Demonstration:
    return Demonstration(*_split(row, names, _column(row, names["response"]), names["response"]))


def _solution(row: Mapping[str, Any], names: Mapping[str, str]) -> Solution:
    prompt, steps, labels = (_column(row, names[n]) for n in names)
    said = names["completions"]
    if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
        raise ValueError(f"{said!r} must be a list of strings, one per step. Got {in_short(steps)}")
    if not all(s.strip() for s in steps):
        raise ValueError(f"{said!r} has an empty step")
    if not isinstance(labels, list) or len(labels) != len(steps):
        got = len(labels) if isinstance(labels, list) else in_short(labels)
        raise ValueError(
            f"{names['labels']!r} must have {len(steps)} entries, one per step. Got {got}"
        )
    right = tuple(_right(x, names["labels"]) for x in labels)
    return Solution(_prompt(prompt, names["prompt"]), tuple(steps), right)


def _verdict(row: Mapping[str, Any], names: Mapping[str, str]) -> Verdict:
    prompt, response = _split(row, names, _column(row, names["completion"]), names["completion"])
    return Verdict(prompt, response, _right(_column(row, names["label"]), names["label"]))


def _right(value: Any, name: str) -> bool:
    if value in (True, False):  # 1 and 0, too
        return bool(value)
    raise ValueError(f"{name!r} must be true or false. Got {in_short(value)}")


def _split(
    row: Mapping[str, Any], names: Mapping[str, str], value: Any, name: str
) -> tuple[Prompt, str]:
    """(prompt, response) of a response that is text, or messages that may hold the prompt, too."""
    if isinstance(value, str):
        return _prompt(_column(row, names["prompt"]), names["prompt"]), value
    messages = _messages(value, name)
    if messages[-1]["role"] != "assistant":
        raise ValueError(f"{name!r} ends with a message of {messages[-1]['role']!r}, not assistant")
    before, response = messages[:-1], messages[-1]["content"]
    if before:  # the conversation is there whole
        return before, response
    return _prompt(_column(row, names["prompt"]), names["prompt"]), response


def _prompt(value: Any, name: str) -> Prompt:
    prompt: Prompt = value if isinstance(value, str) else _messages(value, name)
    if not prompt:
        raise ValueError(f"{name!r} is empty")
    return prompt


def _column(row: Mapping[str, Any], name: str) -> Any:
    if row.get(name) is not None:
        return row[name]
    if name in row:
        raise ValueError(f"{name!r} is null")
    there = ", ".join(row) or "none"
    raise ValueError(f"there is no column {name!r}{nearest(name, row)} (available: {there})")


def _messages(value: Any, name: str) -> list[Message]:
    try:
        return messages_of(value)
    except ValueError as error:
        raise ValueError(f"{name!r} {error}") from None


read_preferences = Reader(("prompt", "chosen", "rejected"), _preference)
read_demonstrations = Reader(
    ("prompt", "response"), _demonstration, {"response": ("completion", "messages")}
)
read_solutions = Reader(("prompt", "completions", "labels"), _solution)
read_verdicts = Reader(("prompt", "completion", "label"), _verdict)
