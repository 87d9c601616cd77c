"""A trace as one self-contained page; each token is shaded by its advantage.

Hovering over a token shows its row. For advantages computed by `gae`, a slider recomputes them at
another lambda.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

from rlzoo_lab.trace.tables import SHARED, all_derivations, legend, own_columns
from rlzoo_lab.trace.trace import Credit, Derivation, Numbers, Trace
from rlzoo_lab.view import page as html
from rlzoo_lab.view.numbers import aligned, number
from rlzoo_lab.view.page import folded, tag
from rlzoo_lab.view.shade import BLUE, ORANGE, largest, paint, style


def page(traced: Trace) -> str:
    """The whole document."""
    blocks = []
    if traced.prompt is not None:
        told = [] if traced.answer is None else [f"answer {traced.answer}"]
        told += [] if traced.score is None else [f"score {number(traced.score)}"]
        prompt = tag("bdi", traced.prompt)
        blocks.append(f'<div class="prompt"><span class="muted">prompt</span> {prompt}</div>')
        blocks.append(tag("p", " · ".join(told), "muted"))
    if traced.response is not None:
        text = tag("bdi", traced.response)
        blocks.append(f'<div class="prompt"><span class="muted">text</span> {text}</div>')
    if traced.credits:
        up, down = paint(BLUE, 0.7), paint(ORANGE, 0.7)
        blocks.append(
            f'<p class="muted key"><span style="{up}">made more likely</span> '
            f'<span class="less" style="{down}">made less likely</span> · a stronger '
            "color means a larger advantage; click a token to see its row</p>"
        )
    else:
        blocks.append(_tokens(traced, None, ""))
    shared: list[HtmlColumn] = [
        (header, traced.columns[name], False)
        for name, header in SHARED.items()
        if name in traced.columns
    ]
    if len(traced.credits) != 1:
        blocks += ["<h2>Inputs</h2>", _table(traced, shared, "")]
        shared = []
    movable = {}
    for i, credit in enumerate(traced.credits):
        blocks += [tag("h2", credit.label), _tokens(traced, credit, str(i))]
        columns = [*shared, *_own_columns(credit)]
        if (numbers := _movable(traced, credit, [header for header, _, _ in columns])) is not None:
            movable[str(i)] = numbers
            blocks.append(html.lambda_slider(str(i), credit.options["lam"]))
        blocks.append(_table(traced, columns, str(i)))
    blocks += [tag("p", line, "muted") for line in [*legend(traced), *traced.notes]]
    if traced.derivations or any(credit.derivations for credit in traced.credits):
        blocks.append("<h2>How the numbers are computed</h2>")
    for where, derivation in all_derivations(traced):
        head = tag("b", where) + escape(derivation.formula)
        lines = (
            f"<pre{_place_of(traced, derivation)}>{escape(chr(10).join(derivation.lines))}</pre>"
        )
        blocks.append(folded(head, lines, shown=True))
    blocks += [html.ROW_OF, html.data_block("data", movable)]
    title = f"{traced.source}, response {traced.row} of {traced.rows}"
    touch, css = html.touch()
    own, script = html.beside(__file__, "page.css", "page.js")
    scripts = [touch, script]
    return html.page(title, blocks, f"{css}\n{own}", script="\n".join(scripts))


def _movable(traced: Trace, credit: Credit, headers: list[str]) -> dict[str, Any] | None:
    """The numbers of which `gae` makes its advantages at any lambda, and the cells that hold them
    in the table; None for another estimator, or where a number is missing.

    depends: cells of what follows from them over the whole batch, which the page cannot recompute.
    """
    names = ("rewards", "values")
    if credit.name != "gae" or traced.bootstrap is None or not set(names) <= set(traced.columns):
        return None
    own = own_columns(credit)
    cells = {name: 2 + headers.index(header) for name, header in own.items()}
    columns = {"advantage": cells["raw_advantages"]}
    if "returns" in cells:
        columns["return"] = cells["returns"]
    at = [traced.columns[name] for name in names]
    found = [[x or 0.0 for x in numbers] for numbers in at]
    depends = [cells[name] for name in ("advantages", "policy_loss") if name in cells]
    return {
        **dict(zip(names, found, strict=True)),
        "mask": [int(token.action) for token in traced.tokens],
        "end": traced.bootstrap, "gamma": credit.options["gamma"], "lam": credit.options["lam"],
        "columns": columns, "depends": depends,
    }  # fmt: skip


def _place_of(traced: Trace, derivation: Derivation) -> str:
    """Whose lines they are, by the estimator's place."""
    for i, credit in enumerate(traced.credits):
        if any(derivation is d for d in credit.derivations):
            return f' data-of="{i}"'
    return ""


def _tokens(traced: Trace, credit: Credit | None, table: str) -> str:
    values: Numbers = credit.columns["advantages"] if credit else [None] * len(traced.tokens)
    top = largest(values)
    spans = []
    for token, value in zip(traced.tokens, values, strict=True):
        word = tag("bdi", token.text or f"{token.t}")
        told = f"advantage {number(value)}" if value is not None else "not chosen by the policy"
        less = value is not None and value < -1e-6
        kind = "less" if less else "" if token.action else "other"
        other = f' class="{kind}"' if kind else ""
        spans.append(
            f'<a href="#t{table}-{token.t}" title="token {token.t}: {told}"'
            f"{other}{style(value, top)}>{word}</a>"
        )
    label = "tokens; use the arrow keys to move between them"
    return f'<div class="tokens" role="group" aria-label="{label}">{"".join(spans)}</div>'


HtmlColumn = tuple[str, Sequence[Any], bool]  # header, a cell per token, whether it is shaded


def _own_columns(credit: Credit) -> list[HtmlColumn]:
    columns: list[HtmlColumn] = [
        (header, credit.columns[name], "advantages" in name)
        for name, header in own_columns(credit).items()
    ]
    if credit.clipped is not None:
        columns.append(("clipped", credit.clipped, False))
    return columns


def _table(traced: Trace, columns: list[HtmlColumn], name: str) -> str:
    head = [tag("th", "t"), tag("th", "token", "left"), *(tag("th", c[0]) for c in columns)]
    tops = [largest(values) if shaded else 0.0 for _, values, shaded in columns]
    texts = [_cells(values) for _, values, _ in columns]
    rows = []
    for i, token in enumerate(traced.tokens):
        cells = "".join(
            f"<td{style(values[i], top) if shaded else ''}>{cells_of[i]}</td>"
            for (_, values, shaded), top, cells_of in zip(columns, tops, texts, strict=True)
        )
        other = "" if token.action else ' class="other"'
        word = f'<td class="token">{tag("bdi", token.text)}</td>'
        rows.append(f'<tr id="t{name}-{token.t}"{other}><td>{token.t}</td>{word}{cells}</tr>')
    headers = [header for header, _, _ in columns]
    if traced.bootstrap is not None and SHARED["values"] in headers:
        after = number(traced.bootstrap)
        ends = [tag("td", after if h == SHARED["values"] else "") for h in headers]
        n = str(len(traced.tokens))
        rows.append(html.row([tag("td", n), tag("td", "(end)", "token"), *ends], "other"))
    return html.table(head, rows)


def _cells(values: Sequence[Any]) -> list[str]:
    """Numbers with their points below each other: figure and punctuation spaces fill them up."""
    if any(isinstance(v, str) for v in values):
        return [escape(v) for v in values]
    cells = []
    for padded in aligned([number(v) for v in values]):
        shown = padded.strip()
        short = padded[len(padded.rstrip()) :]
        if short and "." not in shown:
            short = "\u2008" + short[1:]
        cells.append(shown.replace("-", "\u2212") + short.replace(" ", "\u2007"))
    return cells
