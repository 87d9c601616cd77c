"""Training rows: preferences, demonstrations or judged steps, from a file or a data set folder.

    preference      prompt, chosen, rejected        which of two responses is better
    demonstration   prompt, response                a response to imitate
    solution        prompt, completions, labels     the steps of a response, and which are right
    verdict         prompt, completion, label       a response, and whether it is right

`forms` lists the columns that may have these. A prompt is text or chat messages, `[{"role": "user",
"content": ...}, ...]`; so may be a response, which then ends with the assistant's message, after
the messages of the prompt if it repeats them. A message with more than text (calls of tools,
reasoning) is a response as it is: only a chat template can write it. No torch here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rlzoo.errors import DataError, in_short
from rlzoo_lab.supervised import forms
from rlzoo_lab.supervised.forms import named, needed
from rlzoo_zoo.data import MEDIA, Message, Prompt, from_json, prompt_of, read

Response = str | Message
SPOKEN = {"tool_calls", "reasoning_content", "reasoning", "thinking"}  # next to a message's text
WEIGHTS = ("weight", "loss_weight", "loss", "train")  # of a message in training


class Preference(NamedTuple):
    prompt: Prompt
    chosen: Response
    rejected: Response


class Demonstration(NamedTuple):
    prompt: Prompt
    response: Response


class Solution(NamedTuple):
    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[bool, ...]


class Verdict(NamedTuple):
    prompt: Prompt
    response: Response
    right: bool


Row = TypeVar("Row", Preference, Demonstration, Solution, Verdict)


class Pairs(NamedTuple, Generic[Row]):
    """The rows that were read, how many were bad and skipped, and the forms of the rows."""

    rows: list[Row]
    bad: int
    forms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader(Generic[Row]):
    """Reads rows of one kind from whatever `rlzoo_zoo.data.read` reads.

    columns: the columns of a row, which an option may name. forms: where else they may be.
    """

    columns: tuple[str, ...]
    parse: Callable[[Mapping[str, Any], Mapping[str, str]], Row]
    forms: Mapping[str, str]

    def __call__(
        self,
        path: str | Path,
        names: Mapping[str, str | None] | None = None,
        *,
        subset: str = "",
        split: str = "",
        on_bad_row: str = "stop",
    ) -> Pairs[Row]:
        """names: the names of the columns in the file. on_bad_row: stop (an error that names file
        and line) or skip (counted)."""
        rows: list[Row] = []
        bad, first, found = 0, "", dict[str, None]()
        chats = False  # of texts, with a system message, say
        for line in read(str(path), subset=subset, split=split):
            try:
                if line.values is None:
                    raise ValueError(line.fault)
                if media := next((m for m in MEDIA if from_json(line.values.get(m))), None):
                    raise ValueError(f"{media!r} is not empty; only text is read")
                form, columns = forms.recognised(line.values, self.forms, self.columns, names or {})
                rows.append(self.parse(line.values, columns))
                text = isinstance(forms.value(line.values, columns["prompt"]), str)
                chats = chats or (text and not isinstance(rows[-1].prompt, str))
                found[f"{form} ({', '.join(c for c in columns.values() if c != '-')})"] = None
            except ValueError as error:
                if on_bad_row != "skip":
                    raise DataError(f"{line.place}: {error}") from None
                first = first or f" ({line.place}: {error})"
                bad += 1
        if not rows:
            raise DataError(f"{path}: no usable row{first}")
        if chats:  # all of them, then
            rows = [row._replace(prompt=forms.as_chat(row.prompt)) for row in rows]
        return Pairs(rows, bad, tuple(found))


def conversations(rows: Iterable[Any]) -> Iterator[Prompt]:
    """The prompts of rows, each with its response where both are messages."""
    for row in rows:
        whole = isinstance(row.prompt, list) and isinstance(row.response, dict)
        yield [*row.prompt, row.response] if whole else row.prompt


def _preference(row: Mapping[str, Any], names: Mapping[str, str]) -> Preference:
    of_prompt, *sides = names.values()
    prompt, better = _split(row, of_prompt, needed(row, sides[0]), sides[0])
    known = None if isinstance(prompt, str) else prompt  # one dialogue, and another response to it
    other, worse = _split(row, of_prompt, needed(row, sides[1]), sides[1], known)
    if prompt != other:
        raise ValueError(f"{sides[0]!r} and {sides[1]!r} answer different prompts")
    if better == worse:
        raise ValueError(f"{sides[0]!r} and {sides[1]!r} are the same")
    return Preference(prompt, better, worse)


def _dialogue(text: str) -> tuple[str, str]:
    """(prompt, response) of turns that are one text (Bai et al. 2022, arXiv:2204.05862)."""
    before, mark, response = text.rpartition("\n\nAssistant:")
    if not mark:
        raise ValueError("is text without its prompt; --prompt names the column of the prompt")
    return before + mark, response


def _demonstration(row: Mapping[str, Any], names: Mapping[str, str]) -> Demonstration:
    name = names["response"]
    if name not in row and {"chosen", "rejected"} <= row.keys():
        raise ValueError("these are preferences; --response chosen imitates the better response")
    given = needed(row, name)
    prompt, response = _split(row, names["prompt"], given, name)
    if not isinstance(given, str) and isinstance(response, str) and not response.strip():
        raise ValueError(f"{name!r} has no response")
    for label in ("label", "kto_tag"):
        if str(row.get(label)).lower() == "false":  # CSV has only text
            raise ValueError(
                f"{label!r} is false, so the response is not to be imitated; --on-bad-row skip "
                "leaves such rows out"
            )
    return Demonstration(prompt, response)


def _solution(row: Mapping[str, Any], names: Mapping[str, str]) -> Solution:
    steps, labels = needed(row, names["completions"]), needed(row, names["labels"])
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
    return Solution(forms.prompt(row, names["prompt"]), tuple(steps), right)


def _verdict(row: Mapping[str, Any], names: Mapping[str, str]) -> Verdict:
    name = names["completion"]
    prompt, response = _split(row, names["prompt"], needed(row, name), name)
    return Verdict(prompt, response, _right(needed(row, names["label"]), names["label"]))


def _right(value: Any, name: str) -> bool:
    said = value.strip().lower() if isinstance(value, str) else value  # CSV has only text
    if said in (True, "true", "1"):  # and 1
        return True
    if said in (False, "false", "0"):
        return False
    raise ValueError(f"{name!r} must be true or false. Got {in_short(value)}")


def _split(
    row: Mapping[str, Any], of_prompt: str, value: Any, name: str, known: Prompt | None = None
) -> tuple[Prompt, Response]:
    """(prompt, response) of a response that is text, or messages that may hold the prompt, too.
    of_prompt: the column of the prompt, or "-"; known: the prompt where there is none."""

    def prompt() -> Prompt:
        if of_prompt != "-":
            return forms.prompt(row, of_prompt)
        if known is None:
            raise ValueError(f"{name!r} has no prompt")
        return known

    if isinstance(found := named(name, prompt_of, value), str):
        dialogue = of_prompt == "-" and known is None
        return named(name, _dialogue, found) if dialogue else (prompt(), found)
    *before, last = found
    if last["role"] != "assistant":
        raise ValueError(f"{name!r} ends with a message of {last['role']!r}, not assistant")
    if any(last.get(name, 1) in (0, False) for name in WEIGHTS):
        raise ValueError(f"{name!r} ends with a message whose weight is 0")
    response = last if last.keys() & SPOKEN else last["content"]
    if not before:
        return prompt(), response
    if of_prompt != "-" and before[0]["role"] == "assistant":  # what came of the prompt meanwhile
        return [*forms.as_chat(prompt()), *before], response
    return forms.with_context(row, before), response


read_preferences = Reader(("prompt", "chosen", "rejected"), _preference, forms.PREFERENCES)
read_demonstrations = Reader(("prompt", "response"), _demonstration, forms.DEMONSTRATIONS)
read_solutions = Reader(("prompt", "completions", "labels"), _solution, forms.SOLUTIONS)
read_verdicts = Reader(("prompt", "completion", "label"), _verdict, forms.VERDICTS)
