r"""JSON objects in text: one scanner for the replies of judges and the calls of tools.

`json_objects(text)` gives the objects in order, by these rules: an object begins at a `{` outside
the one before and ends by JSON's grammar, so that braces in its strings do not count. Anything else
is skipped: words, code fences, a `{` that begins no object. An object that is cut off ends the
search, since those inside it are parts. A backslash that begins no escape is itself (`"\sqrt"`),
strings may have line breaks, and NaN and Infinity are not JSON. The last value of a
repeated key counts. Raises RecursionError on deep nesting.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
TRIES = 1000  # of a `{` that begins no object


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    return (found for found, _, _ in placed_objects(text))


def placed_objects(text: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """(object, the text between it and the one before, the text after it) of each object."""
    text = _ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", text)
    at, start, tries = text.find("{"), 0, 0
    while at >= 0 and tries < TRIES:
        try:
            found, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
                return
            at, tries = text.find("{", at + 1), tries + 1
            continue
        yield found, text[start:at], text[end:]
        at, start = text.find("{", end), end


def none_such(word: str) -> None:
    """As `parse_constant`: NaN and Infinity are errors."""
    raise json.JSONDecodeError(f"{word} is not JSON", "", 0)


_DECODER = json.JSONDecoder(strict=False, parse_constant=none_such)
