"""Blocks as HTML: for a page, and for a notebook, which has no style sheet of ours."""

from collections.abc import Iterable, Sequence
from html import escape

from rlzoo.format.text import printable
from rlzoo_lab.view import page as html
from rlzoo_lab.view.blocks import Block, Curve, Note, Series, Table, Text, Tokens
from rlzoo_lab.view.chart import MOST, draw, tint
from rlzoo_lab.view.numbers import is_number, largest, style
from rlzoo_lab.view.page import folded, row, tag

KINDS = {"faint": "muted"}


def body(blocks: Iterable[Block]) -> str:
    """The blocks one after another; all notes are one list, where the first is."""
    shown = list(blocks)
    notes = "".join(tag("li", block.text) for block in shown if isinstance(block, Note))
    out = []
    for block in shown:
        if not isinstance(block, Note):
            out.append(_part(block))
        elif notes:
            out.append(f'<h2>Notes</h2><ul class="notes">{notes}</ul>')
            notes = ""
    return "".join(out)


def page(title: str, blocks: Iterable[Block], first: str = "", more: str = "") -> str:
    """A self-contained page, on which the rows of tables point to curves, and tokens to rows.
    first: HTML above the blocks; more: a script after the common one."""
    shown = list(blocks)
    linked = any(isinstance(block, Table) and block.linked for block in shown)
    inside = [tag("p", html.LINKED, "muted screen")] if linked else []
    script, css = html.touch()
    return html.page(title, [*inside, first, body(shown), html.ROW_OF], css,
                     script=f"{script}linkRows();linkTokens();{more}")  # fmt: skip


def notebook(blocks: Iterable[Block]) -> str:
    """For the output of a cell, which is kept with the notebook: curves have few points. Control
    characters are written out."""
    made = (curve(b, most=100) if isinstance(b, Curve) else body([b]) for b in blocks)
    return printable(f'<div style="line-height:1.45;max-width:46rem">{"".join(made)}</div>')


def framed(page: str) -> str:
    """A page for the output of a cell, whose script reaches nothing but the page."""
    style = "width:100%;height:36rem;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'


def _part(block: Text | Table | Curve | Tokens) -> str:
    match block:
        case Text(kind="title"):
            return tag("h2", block.text)
        case Text(kind="code"):
            return tag("pre", block.text)
        case Text():
            return tag("p", block.text, KINDS.get(block.kind, block.kind))
        case Table():
            made = table(block)
            if block.folded:
                return folded(tag("h2", block.title), made)
            return (tag("h2", block.title) if block.title else "") + made
        case Curve():
            return f"<figure>{curve(block)}</figure>"
        case Tokens():
            return tokens(block)


def table(block: Table) -> str:
    """A wide table scrolls by itself. The texts are escaped."""
    tops = [largest(c.shades) for c in block.columns]

    def cell(name: str, text: str, i: int, shade: str = "") -> str:
        left = not i or block.columns[i].left
        said = ' class="left" style="text-align:left"' if left else shade
        return f"<{name}{said}>{escape(text if left else _padded(text))}</{name}>"

    lines = []
    for n, cells in enumerate(zip(*(c.cells for c in block.columns), strict=True)):
        made = [_name(block, n, cells[0])]
        for i, text in enumerate(cells[1:], 1):
            shades = block.columns[i].shades
            made.append(cell("td", text, i, style(shades[n], tops[i]) if shades else ""))
        kind = "best" if n == block.best else "other" if n in block.faint else ""
        place = f' id="{block.name}-{n}"' if block.name else ""
        lines.append(row(made, kind, n if block.linked else None).replace("<tr", f"<tr{place}", 1))
    for name, why in block.failed.items():
        wide = f'<td colspan="{len(block.columns) - 1}">failed: {escape(why)}</td>'
        lines.append(row([tag("th", name), wide], "failed"))
    return html.table((cell("th", c.name, i) for i, c in enumerate(block.columns)), lines)


def _padded(text: str) -> str:
    """Figure and punctuation spaces put decimal points below each other."""
    shown = text.strip()
    if shown == text or not is_number(shown):
        return shown.replace("-", "\u2212") if is_number(shown) else text
    short = text[len(text.rstrip()) :]
    if short and "." not in shown:
        short = "\u2008" + short[1:]
    return shown.replace("-", "\u2212") + short.replace(" ", "\u2007")


def _name(block: Table, n: int, text: str) -> str:
    swatch = f'<span class="swatch" style="background:{tint(n)}"></span>' if block.linked else ""
    return f'<th scope="row" class="left" style="text-align:left">{swatch}{escape(text)}</th>'


def curve(block: Curve, width: int = 560, height: int = 220, most: int = MOST) -> str:
    """The drawing, its legend and its caption."""
    if not any(len(one.x) for one in block.series):
        return ""
    axes = f"{block.y} by {block.x}" if block.x and not block.across else block.y
    return (
        f'<div class="chart">{draw(block, width, height, most)[0]}<div>{tag("small", axes)} '
        f"{legend(block.series)}</div></div>"
        f"{tag('figcaption', block.caption) if block.caption else ''}"
    )


def legend(series: Sequence[Series]) -> str:
    """The names of the series, if there is more than one."""
    named = [one for one in series if one.name]
    return "".join(
        f'<span class="key" style="--tint:{tint(one.colour)};white-space:nowrap">'
        f'<span style="color:{tint(one.colour)}">{"●" if one.form == "dots" else "—"}</span> '
        f"{escape(one.name or '')}</span> "
        for one in (named if len(named) > 1 else ())
    )


def tokens(block: Tokens) -> str:
    """Words, each a link to its row if they have a table."""
    top, spans = largest(block.values), []
    for t, (word, value) in enumerate(zip(block.words, block.values, strict=True)):
        told = "not chosen by the policy" if value is None else f"{value:.4g}"
        kind = "other" if value is None else "less" if value < -1e-6 else ""
        other = f' class="{kind}"' if kind else ""
        head = f'<a href="#{block.table}-{t}"' if block.table else "<span"
        inside = tag("bdi", word or str(t))
        spans.append(f'{head} title="token {t}: {told}"{other}{style(value, top)}>{inside}'
                     f"</{'a' if block.table else 'span'}>")  # fmt: skip
    label = "tokens; use the arrow keys to move between them"
    return f'<div class="tokens" role="group" aria-label="{label}">{"".join(spans)}</div>'
