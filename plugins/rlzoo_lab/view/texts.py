"""The blocks of a verb, and as texts for other programs: Markdown, LaTeX; and records as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo.format.text import one_line
from rlzoo_lab.view.blocks import Block, Column, Curve, Note, Table, Text
from rlzoo_lab.view.numbers import is_number


@dataclass(frozen=True)
class Shown:
    """The blocks that a verb prints. records: the same results as flat records, for a data frame or
    CSV. curves: makes the curves, which a terminal does not show. page: makes the page with parts
    that move, if there are any, which a notebook shows instead of the blocks."""

    blocks: Sequence[Block]
    records: Sequence[Mapping[str, Any]] = ()
    curves: Callable[[], Sequence[Curve]] = tuple
    page: Callable[[], str] | None = None

    def __call__(self, console: Any) -> list[Any]:
        """For `Result.view`."""
        from rlzoo_lab.view.terminal import rendered  # here: rich

        return rendered(self.blocks, console)


def in_markdown(text: str) -> str:
    """A text on one line, escaped for a paragraph or a table cell of Markdown: it makes no HTML, no
    link and no image."""
    return one_line(text).translate({ord(c): f"\\{c}" for c in "|<"}).replace("](", "]\\(")


def text_of(shown: Shown, form: str) -> str:
    """A verb's blocks, as `markdown`, `latex` or `csv`. LaTeX has the first table only."""
    if form == "csv":
        return as_csv(shown.records)
    if form == "markdown":
        return markdown(shown.blocks)
    first = next(block for block in shown.blocks if isinstance(block, Table))
    return latex([*(b for b in shown.blocks if isinstance(b, Text)), first])


def markdown(blocks: Iterable[Block]) -> str:
    """Paragraphs, tables and a list of notes. Curves and tokens are left out."""
    parts, notes = [], []
    for block in blocks:
        if isinstance(block, Text):
            text = in_markdown(block.text)
            parts.append(f"**{text}**" if block.kind == "title" else text)
        elif isinstance(block, Table):
            parts += [f"**{in_markdown(block.title)}**"] if block.title else []
            parts.append(_markdown(block.columns))
        elif isinstance(block, Note):
            notes.append(f"- {in_markdown(block.text)}")
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def _markdown(columns: Sequence[Column]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(map(in_markdown, cells)) + " |"

    rule = line([":--" if c.left or not i else "--:" for i, c in enumerate(columns)])
    return "\n".join([line(c.name for c in columns), rule, *map(line, _rows(columns))])


def latex(blocks: Iterable[Block]) -> str:
    """Each table as a `tabular` with booktabs rules; emphasized texts as comments above it."""
    lines = []
    for block in blocks:
        if isinstance(block, Text) and block.kind == "strong":
            lines.append(f"% {one_line(block.text)}")
        elif isinstance(block, Table):
            shape = "".join("l" if c.left or not i else "r" for i, c in enumerate(block.columns))
            head, *body = [[c.name for c in block.columns], *_rows(block.columns)]
            lines += [rf"\begin{{tabular}}{{{shape}}}", r"\toprule", _tex(head), r"\midrule",
                      *map(_tex, body), r"\bottomrule", r"\end{tabular}"]  # fmt: skip
    return "\n".join(lines)


_TEX = str.maketrans(
    {c: f"\\{c}" for c in "%&#_{}$"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
       "<": "$<$", ">": "$>$", "|": r"$\vert$",
       "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$"}
)  # fmt: skip


def _tex(cells: Iterable[str]) -> str:
    return " & ".join(one_line(cell).translate(_TEX) for cell in cells) + r" \\"


def _rows(columns: Sequence[Column]) -> list[tuple[str, ...]]:
    return list(zip(*(c.cells for c in columns), strict=True))


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records of the same keys as comma-separated lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, records[0]))
    writer.writerows(map(_cell, record.values()) for record in records)
    return text.getvalue().rstrip("\n")


def _cell(value: Any) -> Any:
    """A value of a CSV file. A text that a spreadsheet would read as a formula gets a `'`."""
    if value is None or isinstance(value, int | float):
        return value
    text = one_line(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not is_number(text) else text
