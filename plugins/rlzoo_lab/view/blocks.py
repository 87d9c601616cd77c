"""What is shown, as plain values: a study makes blocks, and each format shows all of them.

A block holds finished texts and numbers: no functions, and no switch for one verb. Formats:
`terminal`, `html`, `texts` (Markdown, LaTeX, CSV) and, for curves, `chart` (SVG) and `figure`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlzoo_lab.view.numbers import NONE


@dataclass(frozen=True)
class Text:
    """A paragraph. kind: `title`, `strong`, `faint`; `problem`, `warn`, `remark` by weight; `item`,
    which is indented; or `code`: a heading and lines of arithmetic."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Note:
    """A remark that follows the results."""

    text: str


@dataclass(frozen=True)
class Column:
    """A heading and a text for each row.

    short: the heading where the whole one does not fit. left: texts, not numbers. shades: a number
    for each cell, which colours it (`shade`).
    """

    name: str
    cells: Sequence[str]
    short: str = ""
    left: bool = False
    shades: Sequence[float | None] = ()


def column(
    name: str, values: Iterable[Any], form: Callable[[Any], str] = str, short: str = "", **more: Any
) -> Column:
    """A column of values in one form; None is shown as `-`."""
    return Column(name, [NONE if v is None else form(v) for v in values], short, **more)


@dataclass(frozen=True)
class Table:
    """Columns, of which the first names the rows.

    best: the row to highlight. faint: rows that matter less. failed: names of rows without results,
    and why. linked: whether the rows are those of the curves. folded: a page shows only its title.
    name: that of the rows, for links: row 3 is `NAME-3`. narrow: the same with fewer digits, for a
    terminal in which it fits and this does not.
    """

    columns: Sequence[Column]
    title: str = ""
    best: int | None = None
    faint: Sequence[int] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    linked: bool = False
    folded: bool = False
    name: str = ""
    narrow: "Table | None" = None


@dataclass(frozen=True)
class Series:
    """Points (x, y) of a curve; one without a name is in no legend.

    low, high: the ends of a band, or of the dots' bars. form: `line`, `thin` or `dots`. colour: its
    number. row: the row of a linked table to which it belongs.
    """

    name: str | None
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    form: str = "line"
    colour: int = 0
    row: int | None = None


@dataclass(frozen=True)
class Curve:
    """Series on common axes. name: that of its file; label: in words, for a screen reader.

    places: the names of x = 0, 1, ... where x is not a number. across: then these are rows, from
    the top, and y is horizontal. end: where x ends at least.
    """

    name: str
    series: Sequence[Series]
    x: str = "step"
    y: str = ""
    caption: str = ""
    places: Sequence[str] = ()
    across: bool = False
    end: float | None = None


@dataclass(frozen=True)
class Tokens:
    """Words shaded by a number for each; None: the policy did not choose this token.

    label: what is before them. table: the `name` of the table whose rows are these tokens.
    """

    label: str
    words: Sequence[str]
    values: Sequence[float | None]
    table: str = ""


Block = Text | Note | Table | Curve | Tokens
