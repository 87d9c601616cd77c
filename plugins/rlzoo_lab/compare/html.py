"""A comparison as one HTML file."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rlzoo.runs.disk import write_atomically
from rlzoo_lab.compare.comparison import Comparison, TwoWay
from rlzoo_lab.compare.plots import plots
from rlzoo_lab.compare.tables import (
    TableColumn,
    course_columns,
    outcome_columns,
    pair_columns,
    two_way_columns,
    two_way_title,
)
from rlzoo_lab.compare.verdict import method, verdict
from rlzoo_lab.data.comparable import as_typed, is_name
from rlzoo_lab.view import page as html
from rlzoo_lab.view.figure import svg
from rlzoo_lab.view.page import folded, row, table, tag


def write_report(c: Comparison, path: Path, tables: Sequence[TwoWay] = ()) -> None:
    """Write the report of a comparison atomically."""
    write_atomically(path, page(c, tables).encode())


def page(c: Comparison, tables: Sequence[TwoWay] = ()) -> str:
    title, _, warning = c.title.partition("; NOT ON ONE SCALE: ")
    blocks = [tag("p", _subtitle(c), "muted")]
    if warning:
        blocks.append(tag("p", f"Scales differ: {warning}", "warn"))
    blocks.append('<div class="verdict">')
    blocks += [tag("p", sentence) for sentence in verdict(c)]
    blocks += ["</div>", "<h2>Outcome</h2>", _table(c, outcome_columns(c))]
    blocks.append(tag("p", method(c), "muted"))
    if c.pairs:
        pairs = _plain("row", [p.a.label for p in c.pairs], pair_columns(c))
        blocks.append(folded("Every pair", pairs))
    if c.has_curves:
        blocks += ["<h2>Learning curves and cost</h2>", _table(c, course_columns(c, 16))]
    for t in tables:
        blocks += [tag("h2", two_way_title(c, t)), _plain("", t.rows, two_way_columns(t))]
    blocks.append(tag("p", html.LINKED, "muted screen"))
    for name, (caption, draw) in plots(c).items():
        blocks.append(html.figure(svg(draw(), name), caption))
    if c.notes:
        items = "".join(tag("li", note) for note in c.notes)
        blocks.append(f'<h2>Notes</h2><ul class="notes">{items}</ul>')
    blocks += [html.settings(_settings(c)), html.ROW_OF]
    script, css = html.touch()
    [own] = html.beside(__file__, "page.css")
    return html.page(title, blocks, f"{css}\n{own}", script=script + "linkRows();")


def _subtitle(c: Comparison) -> str:
    runs = sum(len(r.runs) for r in c.rows)
    seeds = {seed for r in c.rows for seed in r.runs}
    return (
        f"{runs} run{'s' * (runs != 1)}: {len(c.rows)} row{'s' * (len(c.rows) != 1)}, "
        f"{len(seeds)} seed{'s' * (len(seeds) != 1)}. Bold and green: the best row. "
        f"Reference: {c.reference.label}."
    )


def _table(c: Comparison, columns: Sequence[TableColumn]) -> str:
    body = []
    for i, r in enumerate(c.rows):
        swatch = f'<span class="swatch" style="background: var(--c{i % 8})"></span>'
        cells = [tag("td", col.cells[i].strip(), _kind(col)) for col in columns]
        best = "best" if r is c.best and len(c.rows) > 1 else ""
        body.append(row([f'<th scope="row">{swatch}{escape(r.label)}</th>', *cells], best, i))
    for name, reason in c.all_failed().items():
        cell = f'<td colspan="{len(columns)}">failed: {escape(reason)}</td>'
        body.append(row([tag("th", name), cell], "failed"))
    return table(["<th>row</th>", *(tag("th", col.name, _kind(col)) for col in columns)], body)


def _plain(head: str, names: Sequence[str], columns: Sequence[TableColumn]) -> str:
    body = [
        row([tag("th", name), *(tag("td", col.cells[i], _kind(col)) for col in columns)])
        for i, name in enumerate(names)
    ]
    return table([tag("th", head), *(tag("th", col.name, _kind(col)) for col in columns)], body)


def _kind(column: TableColumn) -> str:
    return "left spark" if column.left else ""


def _settings(c: Comparison) -> dict[str, str]:
    """The settings that all rows share, enough to repeat the runs."""
    configs = [r.recipe for x in c.rows for r in x.runs.values()]
    return {
        k: as_typed(v)
        for k, v in sorted(configs[0].items())
        if v not in (None, "") and all(x.get(k) == v for x in configs)
        and not k.startswith(("run.", "checkpoint.")) and not (is_name(k) and "." not in k)
    }  # fmt: skip
