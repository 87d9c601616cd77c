"""A comparison as tables: rich for terminals, markdown for pages. The cells are the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from rlzoo import stats
from rlzoo.show.curve import sparkline
from rlzoo.show.numbers import NONE, bracket, chance, difference, small, thousands, three_decimals
from rlzoo.tools.compare.comparison import (
    Comparison,
    Pair,
    Reach,
    TwoWay,
    area,
    curve,
    kl_spent,
    mean_of,
    reach,
    tokens_spent,
)
from rlzoo.tools.compare.records import Row, text
from rlzoo.tools.compare.verdict import method, verdict

WIDE = 160


@dataclass
class Column:
    """A heading and a cell for each row."""

    name: str
    cells: list[str]
    left: bool = False


def outcome_columns(c: Comparison, *, brief: bool = False) -> list[Column]:
    """What was reached, against the reference; brief: with short headings."""
    pairs = [c.pair(row, c.reference) for row in c.rows]
    several = len(c.rows) > 1
    columns = [
        Column("n" if brief else "seeds", [str(len(row.seeds)) for row in c.rows]),
        Column("final (IQM)", [final(row) for row in c.rows]),
    ]
    if several:
        better = [
            _against(p, "reference" if row is c.reference else NONE)
            for row, p in zip(c.rows, pairs, strict=True)
        ]
        columns += [
            Column("minus reference", better),
            Column(
                "P(>)" if brief else "P(better)",
                [NONE if p is None else chance(p.improvement) for p in pairs],
            ),
            Column(
                "p" if brief else "p (Holm)", [NONE if p is None else small(p.p) for p in pairs]
            ),
        ]
    return columns


def course_columns(c: Comparison, width: int, *, brief: bool = False) -> list[Column]:
    """How it was reached, and at what cost; curves are `width` wide."""
    columns = [Column("area", [three_decimals(area(row)) for row in c.rows])]
    if c.threshold is not None:
        found = [reach(row, c.threshold) for row in c.rows]
        columns.append(
            Column(
                f"steps to {c.threshold:g}",
                [_time(r, "" if brief else " reached") if r else NONE for r in found],
            )
        )
        if not brief:
            cells = [_tokens_to(r.tokens, r.last_tokens) if r else NONE for r in found]
            columns.append(Column("tokens to", cells))
    curves = [curve(row) for row in c.rows]
    heights = [v for values in curves for v in values]
    if any(kl_spent(row) is not None for row in c.rows):
        columns.append(Column("KL", [_number(kl_spent(row), 2) for row in c.rows]))
    columns += [
        Column("length", [_number(mean_of(row, lambda r: r.length), 1) for row in c.rows]),
        Column("tokens", [thousands(tokens_spent(row)) for row in c.rows]),
        Column("s", [_number(mean_of(row, lambda r: r.summary["seconds"]), 0) for row in c.rows]),
    ]
    if heights:
        scale = min(heights), max(heights)
        columns.append(Column("reward", [sparkline(v, width, scale) for v in curves], left=True))
    return columns


def final(row: Row) -> str:
    interval = stats.iqm_interval(row.scores)
    middle = three_decimals(stats.iqm(row.scores))
    return f"{middle} {bracket(interval)}" if interval else middle


def _against(p: Pair | None, absent: str) -> str:
    if p is None:
        return absent + "  "
    return difference(p.paired) + ((" ▲" if p.paired.mean > 0 else " ▼") if p.shown else "  ")


def _number(value: float | None, decimals: int) -> str:
    return NONE if value is None else f"{value:.{decimals}f}"


def _time(r: Reach, word: str) -> str:
    share = "" if r.reached == r.of else f" ({r.reached}/{r.of}{word})"
    return (f">{r.last_step:g}" if r.steps is None else f"{r.steps:g}") + share


def _tokens_to(median: float | None, last: float) -> str:
    return f">{thousands(last)}" if median is None else thousands(median)


def view(c: Comparison, width: int, tables: Sequence[TwoWay] = ()) -> list[Any]:
    """Everything that `rlzoo compare` prints: one table, or two where the terminal is narrow."""
    wide = width >= WIDE
    brief = width < 100
    outcome = outcome_columns(c, brief=brief)
    course = course_columns(c, 10 if brief else 16, brief=brief)
    if wide:
        parts: list[Any] = [_table(c, c.title, [*outcome, *course])]
    else:
        parts = [_table(c, c.title, outcome), _table(c, "how it got there", course)]
    parts += [two_way_table(c, t) for t in tables]
    parts += [Text(sentence, style="bold") for sentence in verdict(c)]
    parts.append(Text(method(c), style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in c.notes]
    return parts


def _table(c: Comparison, title: str, columns: Sequence[Column]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
                  padding=(0, 1, 0, 0))  # fmt: skip
    longest = max(len(word) for row in c.rows for word in row.label.split())
    table.add_column("row", overflow="fold", style="bold", min_width=longest)
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="left" if column.left else "right",
            no_wrap=any("[" in cell or "(" in cell for cell in column.cells) or column.left,
            overflow="fold",
        )
    for i, row in enumerate(c.rows):
        style = "green" if row is c.best and len(c.rows) > 1 else ""
        table.add_row(Text(row.label), *(Text(col.cells[i]) for col in columns), style=style)
    for name in sorted(set(c.found.failed) - {row.label for row in c.rows}):
        reason = next(iter(c.found.failed[name].values()))
        table.add_row(Text(name), Text("failed"), Text(reason), style="red")
    return table


def two_way_table(c: Comparison, t: TwoWay) -> Table:
    table = Table(title=Text(two_way_title(c, t)), title_justify="left", box=box.SIMPLE_HEAD,
                  pad_edge=False, padding=(0, 1, 0, 0))  # fmt: skip
    table.add_column("", style="bold", overflow="fold")
    for name in t.columns:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for name in t.rows:
        cells = [t.cells.get((name, column)) for column in t.columns]
        table.add_row(Text(name), *(Text(two_way_cell(row)) for row in cells))
    return table


def two_way_title(c: Comparison, t: TwoWay) -> str:
    return f"final {c.metric} (IQM) by {t.key}"


def two_way_cell(row: Row | None) -> str:
    return NONE if row is None else final(row)


def markdown(c: Comparison, tables: Sequence[TwoWay] = ()) -> str:
    """For pages: the tables, then the verdict."""
    columns = [
        Column("row", [row.label for row in c.rows], left=True),
        *outcome_columns(c),
        *course_columns(c, 16),
    ]
    parts = [f"**{c.title}**", _markdown(columns)]
    for t in tables:
        grid = [Column("", t.rows, left=True)]
        for name in t.columns:
            cells = [two_way_cell(t.cells.get((row, name))) for row in t.rows]
            grid.append(Column(text(name), cells))
        parts += [f"**{two_way_title(c, t)}**", _markdown(grid)]
    parts += [" ".join(verdict(c)), method(c)]
    parts += ["\n".join(f"- {note}" for note in c.notes)] if c.notes else []
    return "\n\n".join(parts)


def _markdown(columns: Sequence[Column]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.strip().replace("|", "\\|") for cell in cells) + " |"

    rule = line([":--" if c.left else "--:" for c in columns])
    body = [line(cells) for cells in zip(*(c.cells for c in columns), strict=True)]
    return "\n".join([line([c.name for c in columns]), rule, *body])
