"""Blocks in a terminal, by rich. A table that is too wide is printed as several."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich import table as rich
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import Style
from rich.text import Text as RichText

from rlzoo_lab.view.blocks import Block, Column, Curve, Note, Table, Text, Tokens
from rlzoo_lab.view.numbers import brief, largest, shade, sparkline

STYLES = {"title": "italic", "strong": "bold", "faint": "dim", "problem": "bold red",
          "warn": "yellow", "remark": "cyan"}  # fmt: skip
FOLDS = 24  # characters of a text in a table; a longer one is folded
FOLDS_AT = 12  # characters that a column which may fold keeps at least
BARS = 40  # characters of a curve


def rendered(blocks: Iterable[Block], console: Any) -> list[Any]:
    """Parts that the console can print."""
    return [part for block in blocks for part in _parts(block, console)]


def _parts(block: Block, console: Any) -> list[Any]:
    match block:
        case Text():
            if block.kind == "code":
                head, *lines = block.text.splitlines()
                indented = [part for line in lines for part in _wrapped(line, console)]
                return ["", RichText(head, style="bold", overflow="fold"), *indented]
            text = RichText(block.text, style=STYLES.get(block.kind, ""), overflow="fold")
            return [Padding(text, (0, 0, 0, 2)) if block.kind == "item" else text]
        case Note():
            return [RichText(f"note: {block.text}", style="yellow", overflow="fold")]
        case Table():
            return [_table(block, console)]
        case Tokens():
            pairs = zip(block.words, styles(block.values), strict=True)
            return [RichText.assemble((f"{block.label} ", "dim"), *pairs, overflow="fold")]
        case Curve():
            drawn = [s for s in block.series if s.name is not None and len(s.y)]
            return [RichText(f"{s.name or block.name}  {brief(s.y[0])} {sparkline(s.y, BARS)} "
                             f"{brief(s.y[-1])}") for s in drawn]  # fmt: skip


def _wrapped(line: str, console: Any) -> list[RichText]:
    """A line of arithmetic; what does not fit is indented."""
    pieces = RichText(line).wrap(console, max(20, console.width - 6))
    for piece in pieces:
        piece.rstrip()
    return [RichText.assemble("      " if i else "  ", piece) for i, piece in enumerate(pieces)]


def _table(block: Table, console: Any) -> "WideTable":
    """With short headings, and then less space or the narrow form, if it is too wide."""
    free = console.options.update(max_width=100_000)
    whole, short = ([c.name for c in block.columns], [c.short or c.name for c in block.columns])
    for heads, space in ((whole, 1), (short, 1), (short, 0)):
        table = _made(block, heads, space)
        if Measurement.get(console, free, table).maximum <= console.width:
            return table
    if block.narrow:
        narrow = _made(block.narrow, [c.name for c in block.narrow.columns], 0)
        if Measurement.get(console, free, narrow).maximum <= console.width:
            return narrow
    return table


def _made(block: Table, heads: Sequence[str], space: int) -> "WideTable":
    title = RichText(block.title, style="italic") if block.title else None
    table = WideTable(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False,
                      padding=(0, space, 0, 0))  # fmt: skip
    for i, (head, column) in enumerate(zip(heads, block.columns, strict=True)):
        names = not i and not all(cell.isdigit() for cell in column.cells)
        # Numbers that were aligned by their points have blanks after them, which rich would strip.
        padded = len({*map(len, column.cells)}) == 1 and any(c[-1:] == " " for c in column.cells)
        longest = max((len(word) for cell in column.cells for word in cell.split()), default=0)
        table.add_column(
            RichText(head, justify="left" if names or column.left else "right"),
            justify="left" if names or column.left else "default" if padded else "right",
            style="bold" if names else "", overflow="fold",
            vertical="bottom" if "\n" in "".join(heads) else "top",
            no_wrap=not (names or column.left) or (not names and _short(column)),
            min_width=min(longest, FOLDS) if names else None,
        )  # fmt: skip
    shades = [styles(c.shades) if c.shades else [""] * len(c.cells) for c in block.columns]
    for i, cells in enumerate(zip(*(c.cells for c in block.columns), strict=True)):
        row = (RichText(cell, style=look[i]) for cell, look in zip(cells, shades, strict=True))
        table.add_row(*row, style="green" if i == block.best else "dim" * (i in block.faint))
    for name in block.failed:
        table.add_row(RichText(name), RichText("failed"), style="red")
    return table


def _short(column: Column) -> bool:
    return all(len(cell) <= FOLDS for cell in column.cells)


def styles(values: Sequence[float | None]) -> list[Any]:
    """A style for each number: blue above 0, orange below."""
    top = largest(values)
    return [_style(shade(value, top)) for value in values]


def _style(shaded: tuple[tuple[int, int, int], float] | None) -> Style:
    if shaded is None:
        return Style()
    colour, strength = shaded
    # Towards white where it is weak; black letters can be read on all of it.
    r, g, b = (round(255 - (0.15 + 0.85 * strength) * (255 - c)) for c in colour)
    return Style(color="black", bgcolor=f"rgb({r},{g},{b})")


class WideTable(rich.Table):
    """No column is cut or left out: each part has those that name a row, the first and left-aligned
    ones after it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        columns = [replace(c, min_width=_needed(c, console)) for c in self.columns]
        names = 1
        while names < len(columns) and columns[names].justify == "left":
            names += 1
        width = options.max_width
        if folds := _width(self, columns[: names + 1]) > width:  # else a number would be cut
            texts = (replace(c, no_wrap=c.no_wrap and c.justify != "left") for c in self.columns)
            columns = [replace(c, min_width=_needed(c, console)) for c in texts]
        groups = [columns[:names]]
        for column in columns[names:]:
            if len(groups[-1]) > names and _width(self, [*groups[-1], column]) > width:
                groups.append(columns[:names])
            groups[-1].append(column)
        whole = len(groups) == 1 and not folds
        for part in [self] if whole else [_with(self, g, titled=g is groups[0]) for g in groups]:
            yield from rich.Table.__rich_console__(part, console, options)


def _with(table: rich.Table, columns: Sequence[rich.Column], titled: bool) -> rich.Table:
    part = copy(table)
    part.columns = [replace(column, _index=i) for i, column in enumerate(columns)]
    part.title = table.title if titled else None
    return part


def _needed(column: rich.Column, console: Console) -> int:
    """The characters that a column needs; one that may fold needs its longest word, or a dozen."""
    free = console.options.update(max_width=100_000)
    sizes = [Measurement.get(console, free, cell) for cell in (column.header, *column.cells)]
    if column.no_wrap:
        most = max(size.maximum for size in sizes)
    else:
        most = min(FOLDS_AT, max(size.minimum for size in sizes))
    return min(max(most, column.min_width or 0), column.max_width or most, console.width)


def _width(table: rich.Table, columns: Sequence[rich.Column]) -> int:
    """The width of a table with these columns, each as narrow as it can be."""
    _, right, _, left = Padding.unpack(table.padding)
    count = len(columns)
    lines = (count - 1 + 2 * table.show_edge) if table.box else 0
    beside = count * (left + right) - (0 if table.pad_edge else left + right)
    return sum(column.min_width or 0 for column in columns) + beside + lines
