"""Makes text and tokens visible to a reader."""

import logging
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from rlzoo.errors import in_line


@cache
def _byte_of() -> Mapping[str, int]:
    """The letters in which byte-level vocabularies write bytes, as GPT-2's: printable Latin-1 is
    itself, every other byte a letter from 256 on."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    letters = {chr(b): b for b in plain}
    others = (b for b in range(256) if b not in set(plain))
    return letters | {chr(256 + i): b for i, b in enumerate(others)}


def spaced(decoded: str, piece: str | None) -> str:
    """A token's text with the spaces that it begins with: Llama 2's decoder drops the first space
    of any text. `piece`: the token's entry in the vocabulary, or None."""
    if piece is None:
        return decoded
    spaces = len(piece) - len(piece.lstrip("▁"))
    if not spaces or decoded.startswith("▁"):  # a vocabulary of characters may have a ▁ itself
        return decoded
    return " " * spaces + decoded.lstrip(" ")


def readable(decoded: str, piece: str) -> str:
    """A token as a reader can see it. `decoded`: its text; `piece`: its entry in the vocabulary.

    Invisible parts are escaped: control characters, parts of a character (bytes), white space at
    either end.
    """
    decoded = spaced(decoded, piece) or piece
    if "\ufffd" in decoded:  # part of a character
        if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece):
            return f"\\x{piece[3:5].lower()}"
        letters = _byte_of()
        if piece and all(c in letters for c in piece):
            raw = bytes(letters[c] for c in piece)
            decoded = raw.decode("utf-8", "backslashreplace")
    return "".join(_visible(c, i) for i, c in enumerate(decoded))


def _visible(char: str, place: int) -> str:
    if char == " ":
        return "␣"
    if not char.isprintable() or char in "\ufe0e\ufe0f\u200d":
        return char.encode("unicode_escape").decode()
    if unicodedata.category(char)[0] == "M" and place == 0:
        return f"◌{char}"  # a mark needs something to sit on
    return char


def printable(text: str) -> str:
    """A text with its control characters escaped; line breaks and spaces of any width stay."""
    if text.isprintable():
        return text
    odd = (c for c in set(text) - {"\n"} if not c.isprintable() and unicodedata.category(c) != "Zs")
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in odd})


def one_line(text: str) -> str:
    """A text on one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


@contextmanager
def printable_logs() -> Iterator[None]:
    """In this context, messages that libraries log have no control characters and no colors: they
    may quote an untrusted file."""
    before = logging.getLogRecordFactory()

    def record(*about: Any, **more: Any) -> logging.LogRecord:
        made = before(*about, **more)
        raw = made.getMessage
        made.getMessage = lambda: printable(re.sub(r"\x1b\[[\d;]*m", "", raw()))  # type: ignore[method-assign]
        return made

    logging.setLogRecordFactory(record)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


def say(text: str) -> None:
    """Write a line to stderr without control characters, its long values shortened; it is lost if
    stderr cannot be written."""
    with suppress(OSError):
        print(folded(printable(in_line(text)), sys.stderr), file=sys.stderr)


def folded(text: str, stream: Any = None) -> str:
    """The text for a stream (stdout by default): wrapped between words for a terminal."""
    if not (stream or sys.stdout).isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
