"""A trace as one page that needs nothing else: each token shaded by its advantage."""

from collections.abc import Sequence
from html import escape
from typing import Any

from rlzoo.show.numbers import aligned, number
from rlzoo.show.text import printable
from rlzoo.tools.trace.tables import (
    BLUE,
    ORANGE,
    OWN,
    SHARED,
    all_derivations,
    largest,
    legend,
    shade,
)
from rlzoo.tools.trace.trace import Credit, Numbers, Trace

_CSS = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #5d6675; --paper: #fdfdfc;
  --rule: #dfe3e8; --mark: #fff3c4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ec; --dim: #9aa4b2; --paper: #14181e; --rule: #2d343e; --mark: #3d3a20; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; padding: 0 1.2rem; max-width: 82rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.dim { color: var(--dim); }
.tokens, .prompt { font: 1.15rem/2.1 ui-monospace, "Noto Sans Mono", monospace;
  white-space: pre-wrap; }
.tokens a { color: inherit; text-decoration: none; padding: .2em .12em; border-radius: .25em;
  margin-right: 1px; }
.tokens a.other { opacity: .55; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem;
  overflow-wrap: normal; }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { vertical-align: bottom; font-weight: 600; white-space: pre; }
td.token { text-align: left; font-family: ui-monospace, "Noto Sans Mono", monospace;
  white-space: pre; }
th.token { text-align: left; }
tr.other { color: var(--dim); } tr:target { outline: 2px solid var(--dim); }
pre { font: .88rem/1.55 ui-monospace, "Noto Sans Mono", monospace; white-space: pre-wrap;
  border-left: 3px solid var(--rule); padding-left: .8rem; }
summary { cursor: pointer; }
.key span { color: var(--ink); padding: .1em .5em; border-radius: .25em; }
"""


def page(traced: Trace) -> str:
    """The whole document."""
    title = f"{traced.source}, response {traced.row} of {traced.rows}"
    parts = [f"<h1>{escape(title)}</h1>"]
    if traced.prompt is not None:
        told = [] if traced.answer is None else [f"answer {escape(str(traced.answer))}"]
        told += [] if traced.score is None else [f"score {number(traced.score)}"]
        prompt = escape(printable(traced.prompt))
        parts.append(
            f'<div class="prompt"><span class="dim">prompt</span> <bdi>{prompt}</bdi></div>'
            f'<p class="dim">{" · ".join(told)}</p>'
        )
    if traced.credits:
        up, down = _paint(BLUE, 0.7), _paint(ORANGE, 0.7)
        parts.append(
            f'<p class="dim key"><span style="{up}">made likelier</span> '
            f'<span style="{down}">made less likely</span> the stronger, the larger the '
            "advantage; a token leads to its row</p>"
        )
    else:
        parts.append(_tokens(traced, None, ""))
    for i, credit in enumerate(traced.credits):
        parts += [f"<h2>{escape(credit.label)}</h2>", _tokens(traced, credit, str(i))]
        parts.append(_table(traced, _own(credit), str(i)))
    parts += ["<h2>What went in</h2>", _table(traced, _shared(traced), "")]
    parts += [f'<p class="dim">{escape(text)}</p>' for text in [*legend(traced), *traced.notes]]
    parts.append("<h2>Where the numbers come from</h2>")
    for where, derivation in all_derivations(traced):
        lines = escape("\n".join(derivation.lines))
        parts.append(
            f"<details open><summary><b>{escape(where)}</b>{escape(derivation.formula)}</summary>"
            f"<pre>{lines}</pre></details>"
        )
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _paint(colour: tuple[int, int, int], strength: float) -> str:
    """Translucent, so that the letters keep the page's colour in light and dark."""
    return f"background: rgba({colour[0]},{colour[1]},{colour[2]},{0.1 + 0.55 * strength:.3f})"


def _style(value: float | None, top: float) -> str:
    found = shade(value, top)
    return "" if found is None else f' style="{_paint(*found)}"'


def _tokens(traced: Trace, credit: Credit | None, table: str) -> str:
    values: Numbers = credit.columns["advantages"] if credit else [None] * len(traced.tokens)
    top = largest(values)
    spans = []
    for token, value in zip(traced.tokens, values, strict=True):
        text = escape(token.text or f"{token.t}")
        told = f"advantage {number(value)}" if value is not None else "not chosen by the policy"
        other = "" if token.action else ' class="other"'
        spans.append(
            f'<a href="#t{table}-{token.t}" title="token {token.t}: {told}"'
            f"{other}{_style(value, top)}><bdi>{text}</bdi></a>"
        )
    return f'<div class="tokens">{"".join(spans)}</div>'


Column = tuple[str, Sequence[Any], bool]  # header, a cell per token, whether it is shaded


def _shared(traced: Trace) -> list[Column]:
    found = traced.columns
    return [(header, found[name], False) for name, header in SHARED.items() if name in found]


def _own(credit: Credit) -> list[Column]:
    columns: list[Column] = []
    for name, header in OWN.items():
        if name in credit.columns and (name != "advantages" or credit.whitened):
            header = header if credit.whitened else header.removesuffix("\nraw")
            columns.append((header, credit.columns[name], "advantages" in name))
    if credit.clipped is not None:
        columns.append(("clipped", credit.clipped, False))
    return columns


def _table(traced: Trace, columns: list[Column], name: str) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header, _, _ in columns)
    tops = [largest(values) if shaded else 0.0 for _, values, shaded in columns]
    texts = [_cells(values) for _, values, _ in columns]
    rows = []
    for i, token in enumerate(traced.tokens):
        cells = "".join(
            f"<td{_style(values[i], top) if shaded else ''}>{cells_of[i]}</td>"
            for (_, values, shaded), top, cells_of in zip(columns, tops, texts, strict=True)
        )
        other = "" if token.action else ' class="other"'
        text = f'<td class="token"><bdi>{escape(token.text)}</bdi></td>'
        rows.append(f'<tr id="t{name}-{token.t}"{other}><td>{token.t}</td>{text}{cells}</tr>')
    headers = [header for header, _, _ in columns]
    if traced.bootstrap is not None and SHARED["values"] in headers:
        after = number(traced.bootstrap)
        cells = "".join(f"<td>{after if h == SHARED['values'] else ''}</td>" for h in headers)
        n = len(traced.tokens)
        rows.append(f'<tr class="other"><td>{n}</td><td class="token">(end)</td>{cells}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr><th>t</th><th class="token">token</th>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cells(values: Sequence[Any]) -> list[str]:
    """Numbers with their points below each other: figure and punctuation spaces fill them up."""
    if any(isinstance(v, str) for v in values):
        return [escape(v) for v in values]
    found = []
    for text in aligned([number(v) for v in values]):
        shown = text.strip()
        short = text[len(text.rstrip()) :]
        if short and "." not in shown:
            short = "\u2008" + short[1:]
        found.append(shown.replace("-", "\u2212") + short.replace(" ", "\u2007"))
    return found
