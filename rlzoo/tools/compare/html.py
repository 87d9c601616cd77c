"""A comparison as one HTML file: no network, no scripts, light and dark as the reader's system."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rlzoo.show.figure import css, svg
from rlzoo.tools.compare.comparison import Comparison, TwoWay
from rlzoo.tools.compare.plots import plots
from rlzoo.tools.compare.records import is_name, text
from rlzoo.tools.compare.tables import (
    Column,
    course_columns,
    outcome_columns,
    two_way_cell,
    two_way_title,
)
from rlzoo.tools.compare.verdict import method, verdict

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --good: #0b7a4b; --bad: #b3261e;
  %(light)s }
@media (prefers-color-scheme: dark) { :root { --page: #14171d; --card: #1c2028; --good: #4cd69b;
  --bad: #ff8a80; %(dark)s } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 68rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Noto Sans CJK SC", sans-serif }
h1 { font-size: 1.65rem; line-height: 1.25; margin: 0 0 .25rem }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem }
p { margin: .5rem 0 } .muted, figcaption { color: var(--muted); font-size: .9rem }
.verdict { background: var(--card); border-left: 4px solid var(--c0); border-radius: .4rem;
  padding: .8rem 1.2rem; margin: 1.2rem 0; font-size: 1.05rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem }
th, td { padding: .4rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--faint) }
th { color: var(--muted); font-weight: 600 } th:first-child, td.left, th.left { text-align: left }
tbody th { color: var(--ink) } tr.best th, tr.best td { color: var(--good); font-weight: 600 }
tr.failed td, tr.failed th { color: var(--bad); white-space: normal; text-align: left }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 50%%;
  margin-right: .6em }
.spark { font-family: ui-monospace, "DejaVu Sans Mono", monospace; letter-spacing: -.02em }
figure { margin: 2rem 0 } figure svg { width: 100%%; height: auto; display: block }
.notes li { color: var(--muted); font-size: .9rem } .warn { color: var(--bad); font-weight: 600 }
@media print { body { max-width: none } figure { break-inside: avoid } }
"""


def write_report(c: Comparison, path: Path, tables: Sequence[TwoWay] = ()) -> None:
    """Write the report of a comparison, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")
    aside.write_text(page(c, tables), encoding="utf-8")
    aside.replace(path)


def page(c: Comparison, tables: Sequence[TwoWay] = ()) -> str:
    title, _, warning = c.title.partition("; NOT ON ONE SCALE: ")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE % {'light': css(False), 'dark': css(True)}}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">{escape(_subtitle(c))}</p>',
    ]
    if warning:
        parts.append(f'<p class="warn">Not on one scale: {escape(warning)}</p>')
    parts.append('<div class="verdict">')
    parts += [f"<p>{escape(sentence)}</p>" for sentence in verdict(c)]
    parts += ["</div>", "<h2>Outcome</h2>", _table(c, outcome_columns(c))]
    parts.append(f'<p class="muted">{escape(method(c))}</p>')
    parts += ["<h2>How it got there</h2>", _table(c, course_columns(c, 16))]
    for t in tables:
        parts += [f"<h2>{escape(two_way_title(c, t))}</h2>", _two_way(t)]
    for name, (caption, draw) in plots(c).items():
        parts.append(f"<figure>{svg(draw(), name)}<figcaption>{escape(caption)}</figcaption>"
                     "</figure>")  # fmt: skip
    if c.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in c.notes)
        parts.append(f'<h2>Notes</h2><ul class="notes">{items}</ul>')
    parts.append(f"<h2>Settings</h2>{_settings(c)}")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _subtitle(c: Comparison) -> str:
    runs = sum(len(row.runs) for row in c.rows)
    seeds = sorted({seed for row in c.rows for seed in row.runs})
    return (
        f"{runs} run{'s' * (runs != 1)}: {len(c.rows)} row{'s' * (len(c.rows) != 1)}, "
        f"{len(seeds)} seed{'s' * (len(seeds) != 1)}. Green: the best row. "
        f"Reference: {c.reference.label}."
    )


def _table(c: Comparison, columns: Sequence[Column]) -> str:
    head = "".join(f"<th{_left(col)}>{escape(col.name)}</th>" for col in columns)
    body = []
    for i, row in enumerate(c.rows):
        swatch = f'<span class="swatch" style="background: var(--c{i % 8})"></span>'
        cells = "".join(f"<td{_left(col)}>{escape(col.cells[i].strip())}</td>" for col in columns)
        best = ' class="best"' if row is c.best and len(c.rows) > 1 else ""
        body.append(f"<tr{best}><th>{swatch}{escape(row.label)}</th>{cells}</tr>")
    for name in sorted(set(c.found.failed) - {row.label for row in c.rows}):
        reason = next(iter(c.found.failed[name].values()))
        body.append(f'<tr class="failed"><th>{escape(name)}</th>'
                    f'<td colspan="{len(columns)}">failed: {escape(reason)}</td></tr>')  # fmt: skip
    return (
        f'<div class="scroll"><table><thead><tr><th>row</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _left(column: Column) -> str:
    return ' class="left spark"' if column.left else ""


def _two_way(t: TwoWay) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in t.columns)
    body = []
    for name in t.rows:
        cells = [two_way_cell(t.cells.get((name, column))) for column in t.columns]
        inside = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body.append(f"<tr><th>{escape(name)}</th>{inside}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _settings(c: Comparison) -> str:
    """What all rows share, in words: enough to run it again."""
    configs = [r.recipe for row in c.rows for r in row.runs.values()]
    first = configs[0]
    shared = {
        k: v
        for k, v in sorted(first.items())
        if v not in (None, "") and all(x.get(k) == v for x in configs)
        and not k.startswith(("run.", "checkpoint.")) and not (is_name(k) and "." not in k)
    }  # fmt: skip
    words = " ".join(f"{k}={text(v)}" for k, v in shared.items())
    return f'<p class="muted">{escape(words)}</p>'
