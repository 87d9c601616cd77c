"""A table of rich's that is printed as several where the terminal is too narrow."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table

FOLDS_AT = 12  # characters that a column which may fold keeps at least


class WideTable(Table):
    """No column is cut or left out: each part has those that name a row, the first and left-aligned
    ones after it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        columns = [replace(c, min_width=_needed(c, console)) for c in self.columns]
        names = 1
        while names < len(columns) and columns[names].justify == "left":
            names += 1
        width, groups = options.max_width, [columns[:names]]
        for column in columns[names:]:
            if len(groups[-1]) > names and _width(self, [*groups[-1], column]) > width:
                groups.append(columns[:names])
            groups[-1].append(column)
        whole = len(groups) == 1
        for part in [self] if whole else [_with(self, g, titled=g is groups[0]) for g in groups]:
            yield from Table.__rich_console__(part, console, options)


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
