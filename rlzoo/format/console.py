"""A terminal that shows texts of data and models without executing their control characters."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table

FOLDS_AT = 12  # characters that a column which may fold keeps at least


class SafeConsole(Console):
    """rich's, with one character in the place of each control character of a text (ESC, bells,
    marks that turn the direction of writing): none of a model's reaches the terminal.

    A table that is wider than the terminal is printed as several: no column is cut or left out.
    goes_on: for progress, so that a full disk or a closed terminal does not end the work.
    """

    goes_on = False

    def print(self, *objects: Any, **options: Any) -> None:
        parts: list[Any] = []
        for one in objects:
            if not isinstance(one, Table) or not one.show_header:
                parts.append(one)
                continue
            columns = [replace(c, min_width=_needed(c, self)) for c in one.columns]
            names = 1  # the columns that name a row: the first, and left-aligned ones after it
            while names < len(columns) and columns[names].justify == "left":
                names += 1
            if names == len(columns) or _width(one, columns) <= self.width:
                parts.append(one)
                continue
            split, group = [], columns[:names]
            for column in columns[names:]:
                if len(group) > names and _width(one, [*group, column]) > self.width:
                    split.append(group)
                    group = columns[:names]
                group = [*group, column]
            parts += [_with(one, group, titled=not i) for i, group in enumerate([*split, group])]
        super().print(*parts, **options)

    def on_broken_pipe(self) -> None:
        """The reader has gone, as with `| head`: the work continues; rich's own ends it."""
        self.quiet = True
        with suppress(OSError):  # not a real file
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:
            if not self.goes_on:
                raise
            self.on_broken_pipe()

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*arguments, **options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment("".join(map(_picture, text)), segment.style)


def _picture(char: str) -> str:
    """A symbol of the same width: U+241B for ESC."""
    if char.isprintable() or char == "\n":
        return char
    return chr(0x2400 + ord(char)) if char < " " else "\ufffd"


def _with(table: Table, columns: Sequence[Column], titled: bool) -> Table:
    part = copy(table)
    part.columns = [replace(column, _index=i) for i, column in enumerate(columns)]
    part.title = table.title if titled else None
    return part


def _needed(column: Column, console: Console) -> int:
    """The characters that a column needs; one that may fold needs its longest word, or a dozen."""
    free = console.options.update(max_width=100_000)
    sizes = [Measurement.get(console, free, cell) for cell in (column.header, *column.cells)]
    if column.no_wrap:
        most = max(size.maximum for size in sizes)
    else:
        most = min(FOLDS_AT, max(size.minimum for size in sizes))
    return min(max(most, column.min_width or 0), column.max_width or most, console.width)


def _width(table: Table, columns: Sequence[Column]) -> int:
    """The width of a table with these columns, each as narrow as it can be."""
    _, right, _, left = Padding.unpack(table.padding)
    count = len(columns)
    lines = (count - 1 + 2 * table.show_edge) if table.box else 0
    beside = count * (left + right) - (0 if table.pad_edge else left + right)
    return sum(column.min_width or 0 for column in columns) + beside + lines
