"""The forms in which data sets write rows for training: which columns have what.

A row's form is recognised by its columns. Where two forms fit, the row is ambiguous and an option
has to name the column; of two forms one of which has all the columns of the other, the larger fits.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rlzoo.errors import in_short
from rlzoo_zoo.data import Message, Prompt, column, from_json, no_column, prompt_of

# The columns of a row; "-" where the response is a whole conversation, which has the prompt.
DEMONSTRATIONS = {
    "prompt and response": "prompt response",
    "prompt and completion": "prompt completion",
    "messages": "- messages",
    "ShareGPT": "- conversations",
    "Alpaca": "instruction output",
    "instruction and response": "instruction response",
    "query and response": "query response",
}
PREFERENCES = {
    "prompt, chosen and rejected": "prompt chosen rejected",
    "chosen and rejected": "- chosen rejected",
    "ShareGPT, chosen and rejected": "conversations chosen rejected",
    "Alpaca, chosen and rejected": "instruction chosen rejected",
    "chosen and rejected messages": "- chosen_messages rejected_messages",
    "question, chosen and rejected": "question chosen rejected",
    "messages and rejected response": "- messages rejected_response",
    "messages and rejected messages": "- messages rejected_messages",
    "query, response and rejected response": "query response rejected_response",
    "OpenAI preferences": "input.messages preferred_output non_preferred_output",
}
VERDICTS = {
    "prompt, completion and label": "prompt completion label",
    "prompt, response and label": "prompt response label",
    "messages and label": "- messages label",
    "ShareGPT and label": "- conversations label",
    "Alpaca and label": "instruction output label",
    "Alpaca and KTO tag": "instruction output kto_tag",
    "query, response and label": "query response label",
}
OPTIONS = (
    "prompt",
    "response",
    "chosen",
    "rejected",
    "completion",
    "completions",
    "label",
    "labels",
)
SOLUTIONS = {"prompt, completions and labels": "prompt completions labels"}


def recognised(
    row: Mapping[str, Any],
    forms: Mapping[str, str],
    columns: tuple[str, ...],
    given: Mapping[str, str | None],
) -> tuple[str, dict[str, str]]:
    """(form, {what: column}) of a row; of no form, the usual names. `given`: columns that an option
    names. Raises ValueError where several forms fit."""
    fits: dict[tuple[str, ...], str] = {}
    for form, text in forms.items():
        names = tuple(given.get(c) or n for c, n in zip(columns, text.split(), strict=True))
        if all(name == "-" or value(row, name) is not None for name in names):
            fits.setdefault(names, form)
    for names in list(fits):
        if any({*names} - {"-"} < {*others} for others in fits if others != names):
            del fits[names]
    if len(fits) > 1:
        ways = " or ".join(
            " ".join(f"--{c} {n}" for c, n in zip(columns, names, strict=True) if n != "-")
            for names in fits
        )
        raise ValueError(f"several forms fit: {', '.join(fits.values())}; choose by {ways}")
    if not fits:
        return "", {c: given.get(c) or c for c in columns}
    ((names, form),) = fits.items()
    return form, dict(zip(columns, names, strict=True))


def value(row: Mapping[str, Any], name: str) -> Any:
    """A column, or what is in it at a path; None where there is none."""
    try:
        return column(row, name)
    except KeyError:
        return None


def needed(row: Mapping[str, Any], name: str) -> Any:
    """A column that must be there; raises ValueError."""
    try:
        found = column(row, name)
    except KeyError:
        option = f"; --{name} names another" if name in OPTIONS else ""
        raise ValueError(f"{no_column(name, row)}{option}") from None
    if found is None:
        raise ValueError(f"{name!r} is null")
    return found


def prompt(row: Mapping[str, Any], name: str) -> Prompt:
    """The prompt in a column; an `instruction` is followed by `input` or `context`."""
    found = needed(row, name)
    if name == "instruction" and isinstance(found, str):
        more = row.get("input") or row.get("context")
        found = "\n".join(filter(None, (found, more)))
    if not found:
        raise ValueError(f"{name!r} is empty")
    return with_context(row, named(name, prompt_of, found))


def with_context(row: Mapping[str, Any], prompt: Prompt) -> Prompt:
    """A prompt with what other columns have of it, and then chat messages: `system` (or
    `system_prompt`), `history` (pairs of earlier turns), `tools`."""
    chat = as_chat(prompt)
    before = named("history", _turns, row.get("history"))
    name = next((n for n in ("system", "system_prompt") if row.get(n)), None)
    if name and chat[0]["role"] != "system":
        before.insert(0, {"role": "system", "content": row[name]})
    elif name and chat[0]["content"] != row[name]:
        raise ValueError(f"{name!r} is not the system message of the conversation")
    tools = from_json(row.get("tools")) or value(row, "input.tools")
    return prompt_of([*before, *chat], tools) if before or tools else prompt


def _turns(history: Any) -> list[Message]:
    pairs = from_json(history) or []
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise ValueError(f"must be pairs of earlier turns. Got {in_short(history)}")
    roles = ("user", "assistant")
    return [{"role": r, "content": t} for pair in pairs for r, t in zip(roles, pair, strict=True)]


def as_chat(prompt: Prompt) -> list[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def named(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    """read(value), whose errors name the column."""
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name!r} {error}") from None
