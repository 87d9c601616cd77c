"""A comparison as tables: rich for terminals, markdown for pages. The cells are the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from rlzoo.format.text import in_markdown, one_line
from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison, Pair, TwoWay
from rlzoo_lab.compare.measures import (
    Reach,
    area,
    curve,
    greedy,
    kl_spent,
    mean_of,
    reach,
    tokens_spent,
)
from rlzoo_lab.compare.verdict import difference, method, sides, verdict
from rlzoo_lab.data.comparable import ComparedRow
from rlzoo_lab.view.numbers import (
    NONE,
    bracket,
    chance,
    signed,
    small,
    sparkline,
    thousands,
    three_decimals,
)

WIDE = 160
LOOK: Any = {"title_justify": "left", "box": box.SIMPLE_HEAD, "pad_edge": False,
             "padding": (0, 1, 0, 0)}  # fmt: skip
NARROW = 70  # columns of a terminal below which some numbers are left out


@dataclass
class TableColumn:
    """A column: a heading and a cell for each row."""

    name: str
    cells: list[str]
    left: bool = False


CellOf = Callable[[ComparedRow], str]


def _columns(c: Comparison, cells: Mapping[str, CellOf]) -> list[TableColumn]:
    return [TableColumn(name, list(map(cell, c.rows))) for name, cell in cells.items()]


def _many(p: Pair) -> bool:
    """Whether seeds can show anything about chance: one cannot."""
    return p.contrast.n > 1


def outcome_columns(c: Comparison, *, brief: bool = False) -> list[TableColumn]:
    """The results compared with the reference; brief: with short headings."""

    def paired(cell: Callable[[Pair], str]) -> CellOf:
        return lambda row: cell(p) if (p := c.pair(row, c.reference)) and _many(p) else NONE

    def lead(row: ComparedRow) -> str:
        p = c.pair(row, c.reference)
        if p is None:
            return ("reference" if row is c.reference else NONE) + "  "
        mark = ("▲" if p.contrast.mean > 0 else "▼") if p.claimed else "?" if p.shown else " "
        return f"{difference(p.contrast)} {mark}"

    cells: dict[str, CellOf] = {
        "n" if brief else "seeds": lambda row: str(len(row.seeds)),
        "final": final,
    }
    if all(mean_of(row, greedy) is not None for row in c.rows):
        cells["greedy"] = lambda row: _number(mean_of(row, greedy), 3)
    if len(c.rows) > 1:
        cells |= {
            "minus reference": lead,
            "P(>)" if brief else "P(better)": paired(lambda p: chance(p.improvement)),
            "p": paired(lambda p: small(p.contrast.p)),
        }
    return _columns(c, cells)


def course_columns(c: Comparison, width: int, *, brief: bool = False) -> list[TableColumn]:
    """The curves (`width` characters wide) and the cost."""
    cells: dict[str, CellOf] = {"area": lambda row: three_decimals(area(row))}
    if (goal := c.threshold) is not None:
        cells[f"steps to {goal:g}"] = lambda row: _steps_to(reach(row, goal), brief)
        if not brief:
            cells["tokens to"] = lambda row: _tokens_to(reach(row, goal))
    if any(kl_spent(row) is not None for row in c.rows):
        cells["KL"] = lambda row: _number(kl_spent(row), 2)
    cells |= {
        "length": lambda row: _number(mean_of(row, lambda run: run.length), 1),
        "tokens": lambda row: NONE if (n := tokens_spent(row)) is None else thousands(n),
        "s": lambda row: _number(mean_of(row, lambda run: run.summary.get("seconds")), 0),
    }
    columns = _columns(c, cells)
    curves = [curve(row) for row in c.rows]
    heights = [v for values in curves for v in values]
    if heights:
        scale = min(heights), max(heights)
        sparks = [sparkline(values, width, scale) for values in curves]
        columns.append(TableColumn("reward", sparks, left=True))
    return columns


def final(row: ComparedRow) -> str:
    """The mean over seeds with its interval; for a bimodal row, each mode and its size."""
    if row.split:
        low, high = sides(row)
        return " | ".join(f"{three_decimals(fmean(x))} x{len(x)}" for x in (high, low))
    interval = stats.t_interval(row.scores)
    middle = three_decimals(fmean(row.scores))
    return f"{middle} {bracket(interval)}" if interval else middle


def _number(value: float | None, decimals: int) -> str:
    return NONE if value is None else f"{value:.{decimals}f}"


def _steps_to(r: Reach, brief: bool) -> str:
    share = "" if r.reached == r.of else f" ({r.reached}/{r.of}{'' if brief else ' reached'})"
    return (f">{r.last_step:g}" if r.steps is None else f"{r.steps:g}") + share


def _tokens_to(r: Reach) -> str:
    return f">{thousands(r.last_tokens)}" if r.tokens is None else thousands(r.tokens)


def pair_columns(c: Comparison, *, brief: bool = False) -> list[TableColumn]:
    """For every pair: the test over seeds, the sign-flip test, and these runs over prompts."""

    def interval(x: stats.Interval | None) -> str:
        return bracket(x) if x else NONE

    def cells(cell: Callable[[Pair], str]) -> list[str]:
        return [cell(p) for p in c.pairs]

    def widest(p: Pair) -> str:
        return f"{bracket(p.signs.widest)} {100 * p.signs.level:.0f} %" if p.signs.widest else NONE

    def runs(p: Pair) -> str:
        return f"{signed(p.runs[0])} {interval(p.runs[1])}" if p.runs else NONE

    columns = {
        "minus": cells(lambda p: p.b.label),
        "method (seeds)": cells(lambda p: difference(p.contrast)),
        "p": cells(lambda p: small(p.contrast.p) if _many(p) else NONE),
        "these runs (prompts)": cells(runs),
    }
    if not brief:
        columns |= {
            "shows": cells(
                lambda p: " to ".join(three_decimals(x) for x in c.shows(p) or ()) or NONE
            ),
            "sampling": cells(lambda p: NONE if p.sampling is None else f"{p.sampling:.0%}"),
            "signs p": cells(lambda p: small(p.p_signs) if _many(p) else NONE),
            "all seeds within": cells(widest),
        }
    return [TableColumn(name, found, left=name == "minus") for name, found in columns.items()]


def view(
    c: Comparison, width: int, tables: Sequence[TwoWay] = (), details: bool = False
) -> list[Any]:
    """Everything that `rlzoo compare` prints: one table, or two in a narrow terminal."""
    brief = width < 100
    outcome = outcome_columns(c, brief=brief)
    course = course_columns(c, 10 if brief else 16, brief=brief)
    if width < NARROW:
        outcome = [column for column in outcome if column.name not in ("greedy", "p")]
        course = [column for column in course if column.name not in ("tokens", "s")]
    made: list[Table] = []
    if width >= WIDE:
        made += [_table(c, None, [*outcome, *course] if c.has_curves else outcome)]
    else:
        made += [_table(c, None, outcome)]
        made += [_table(c, "learning curves and cost", course)] if c.has_curves else []
    made += [two_way_table(c, t) for t in tables]
    if details and c.pairs:
        columns = pair_columns(c, brief=width < 120)
        made.append(_table(c, "every pair", columns, [p.a.label for p in c.pairs]))
    for table in made if width < NARROW else ():
        table.padding = 0
    # A table's own title breaks at its width.
    blocks: list[Any] = [Text(c.title, style="italic"), *made]
    blocks += [Text(sentence, style="bold") for sentence in verdict(c)]
    blocks += [Text(method(c), style="dim")] if c.pairs else []
    blocks += [Text(f"note: {note}", style="yellow") for note in c.notes]
    return blocks


def _table(
    c: Comparison, title: str | None, columns: Sequence[TableColumn], names: Sequence[str] = ()
) -> Table:
    """names: of its rows, instead of the comparison's rows."""
    table = Table(title=title, **LOOK)
    labels = list(names) or [row.label for row in c.rows]
    longest = max(len(word) for name in labels for word in name.split())
    table.add_column("row", overflow="fold", style="bold", min_width=longest)
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="left" if column.left else "right",
            no_wrap=any("[" in cell or "(" in cell for cell in column.cells)
            or (column.left and not names),
            overflow="fold",
        )
    for i, name in enumerate(labels):
        best = not names and c.rows[i] is c.best and len(c.rows) > 1
        cells = (Text(col.cells[i]) for col in columns)
        table.add_row(Text(name), *cells, style="green" if best else "")
    for name in () if names else c.all_failed():  # the verdict gives the reason
        table.add_row(Text(name), Text("failed"), style="red")
    return table


def two_way_table(c: Comparison, t: TwoWay) -> Table:
    table = Table(title=Text(two_way_title(c, t)), **LOOK)
    table.add_column("", style="bold", overflow="fold")
    columns = two_way_columns(t)
    for column in columns:
        table.add_column(Text(column.name), justify="right", no_wrap=True)
    for cells in zip(t.rows, *(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def two_way_title(c: Comparison, t: TwoWay) -> str:
    return f"final {c.metric} by {t.key}"


def two_way_columns(t: TwoWay) -> list[TableColumn]:
    def cell(place: tuple[str, str]) -> str:
        return final(t.cells[place]) if place in t.cells else NONE

    return [TableColumn(name, [cell((row, name)) for row in t.rows]) for name in t.columns]


def markdown(c: Comparison, tables: Sequence[TwoWay] = (), details: bool = False) -> str:
    """Markdown with the tables, then the verdict."""
    columns = [
        TableColumn("row", [row.label for row in c.rows], left=True),
        *outcome_columns(c),
        *(course_columns(c, 16) if c.has_curves else ()),
    ]
    paragraphs = [f"**{in_markdown(c.title)}**", _markdown(columns)]
    for t in tables:
        grid = [TableColumn("", t.rows, left=True), *two_way_columns(t)]
        paragraphs += [f"**{in_markdown(two_way_title(c, t))}**", _markdown(grid)]
    if details and c.pairs:
        names = TableColumn("row", [p.a.label for p in c.pairs], left=True)
        paragraphs.append(_markdown([names, *pair_columns(c)]))
    paragraphs += [in_markdown(" ".join(verdict(c))), in_markdown(method(c))]
    paragraphs += ["\n".join(f"- {in_markdown(note)}" for note in c.notes)] if c.notes else []
    return "\n\n".join(paragraphs)


def latex(c: Comparison) -> str:
    """The results as a LaTeX `tabular` with booktabs rules, and the verdict in a comment above
    it."""
    columns = [TableColumn("row", [row.label for row in c.rows], left=True), *outcome_columns(c)]
    lines = zip(*([column.name, *column.cells] for column in columns), strict=True)
    head, *body = [" & ".join(map(_tex, cells)) + r" \\" for cells in lines]
    shape = "".join("l" if column.left else "r" for column in columns)
    return "\n".join([
        *(f"% {one_line(sentence)}" for sentence in verdict(c)), rf"\begin{{tabular}}{{{shape}}}",
        r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}",
    ])  # fmt: skip


_TEX = str.maketrans(
    {c: f"\\{c}" for c in "%&#_{}$"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
       "<": "$<$", ">": "$>$", "|": r"$\vert$",
       "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$"}
)  # fmt: skip


def _tex(cell: str) -> str:
    return one_line(cell).translate(_TEX)


def _markdown(columns: Sequence[TableColumn]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(in_markdown, cells)) + " |"

    rule = line([":--" if c.left else "--:" for c in columns])
    body = [line(cells) for cells in zip(*(c.cells for c in columns), strict=True)]
    return "\n".join([line([c.name for c in columns]), rule, *body])
