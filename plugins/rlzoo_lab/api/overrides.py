"""Python settings as words of the command line."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlzoo.errors import UsageError
from rlzoo_lab.data.words import quoted

ODD = frozenset(",:[]{}#&*!|>%@`'\"\\")  # what YAML gives a meaning
Overrides = str | Iterable[str] | Mapping[str, Any]


def as_words(overrides: Overrides | None, swept: bool = False) -> list[str]:
    """Converts "lam=0.9 seed=1" and {"lam": 0.9, "seed": 1} to ["lam=0.9", "seed=1"].

    swept: a list as a value means several rows, `lam=0,1`; otherwise one value, `betas=[0.9,0.99]`.
    Raises UsageError for anything else.
    """
    if overrides is None:
        return []
    if isinstance(overrides, str):
        return shlex.split(overrides)
    if isinstance(overrides, Mapping):
        return [f"{key}={_value(value, swept)}" for key, value in _leaves(overrides)]
    words = list(overrides) if isinstance(overrides, Iterable) else [overrides]
    for word in words:
        if not isinstance(word, str):
            raise UsageError(
                f"settings must be {{'seed': 1}}, 'seed=1' or a list of those. Got {word!r}"
            )
    return words


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _value(value: Any, swept: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | range):
        inside = ",".join(_value(part, False) for part in value)
        return inside if swept else f"[{inside}]"
    text = str(value)
    # A text is one value, whatever it holds; in a sweep "0,0.5" is two rows, as on a command line.
    odd = not text or any(c in ODD or c.isspace() for c in text)
    return quoted(text) if odd and not swept else text
