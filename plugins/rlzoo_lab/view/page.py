"""One self-contained HTML page: no network access, light or dark according to the system.

The parts of all pages: head and style, tabs, tables, figures, collapsible sections. A policy in the
head forbids the browser to fetch anything, and to run any script but the page's own.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from rlzoo.format.text import printable
from rlzoo_lab.view.figure import COLOURS

# name -> (light, dark), in addition to the figures' colours
PAPER = {
    "page": ("#ffffff", "#14171d"),
    "card": ("#f6f7f9", "#1c2028"),
    "good": ("#0b7a4b", "#4cd69b"),
    "bad": ("#b3261e", "#ff8a80"),
    "warn": ("#8a5300", "#f5b84d"),
}


def page(
    title: str,
    blocks: Iterable[str],
    css: str = "",
    *,
    script: str = "",
    refresh: float | None = None,
) -> str:
    """The document: its title as text, its blocks as HTML, and `css` in addition to the common
    style. Control characters, and marks that turn the direction of writing, are escaped wherever
    they are.

    script: JavaScript, the only one that may run. refresh: seconds until it is loaded again.
    """
    light, dark = (_variables(theme) for theme in (0, 1))
    [common] = beside(__file__, "page.css")
    script = script and f"\n{script.strip()}\n"
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh:g}">\n'
    return printable(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{tag('title', title)}\n<style>\n:root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{common.strip()}\n{css.strip()}\n</style></head><body>\n{tag('h1', title)}\n"
        + "\n".join(blocks)
        + (f"\n<script>{script}</script>" if script else "")
        + "\n</body></html>\n"
    )


def beside(module: str, *names: str) -> list[str]:
    """The texts of files in the folder of a module, by its `__file__`."""
    return [Path(module).with_name(name).read_text(encoding="utf-8") for name in names]


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = f"'sha256-{digest}'" if script else "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {own}"


def _variables(theme: int) -> str:
    pairs = COLOURS | PAPER
    return " ".join(f"--{name}: {pair[theme]};" for name, pair in pairs.items())


def tag(name: str, text: str, kind: str = "") -> str:
    """An element around a text, which is escaped; `kind` is its class."""
    return f"<{name}{_class(kind)}>{escape(text)}</{name}>"


def row(cells: Iterable[str], kind: str = "", number: int | None = None) -> str:
    """A row of a table; its cells are HTML. number: that of its marks in a figure."""
    data = "" if number is None else f' data-row="{number}"'
    return f"<tr{_class(kind)}{data}>{''.join(cells)}</tr>"


def table(head: Iterable[str], rows: Iterable[str]) -> str:
    """Cells of the head and rows are HTML; a wide table scrolls by itself."""
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="table"><table>'
        f"<thead>{row(head)}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def settings(values: Mapping[str, Any]) -> str:
    """A recipe's keys and values, folded."""
    heads = [tag("th", "key", "left"), tag("th", "value", "left")]
    rows = [
        row([tag("td", k, "left mono"), tag("td", str(values[k]), "left long")]) for k in values
    ]
    return folded("<h2>Settings</h2>", table(heads, rows))


def folded(title: str, inside: str, *, shown: bool = False) -> str:
    """A part under its title, which unfolds it."""
    return f"<details{' open' * shown}><summary>{title}</summary>{inside}</details>"


def tabs(label: str, panels: Iterable[tuple[str, str, str]]) -> tuple[str, str]:
    """(HTML, JavaScript) of panels (id, title, HTML), one at a time; without the script all, one
    below the other. Arrow keys, Home and End move among tabs; the address names the open one."""
    heads, bodies = [], []
    for name, title, inside in panels:
        heads.append(f'<a role="tab" id="tab-{name}" href="#{name}" aria-controls="{name}">'
                     f"{escape(title)}</a>")  # fmt: skip
        bodies.append(f'<section role="tabpanel" id="{name}" tabindex="-1" '
                      f'aria-labelledby="tab-{name}">{inside}</section>')  # fmt: skip
    row_of = f'<div class="tabs" role="tablist" aria-label="{escape(label)}">{"".join(heads)}</div>'
    [script] = beside(__file__, "tabs.js")
    return row_of + "".join(bodies), script


def data_block(name: str, data: Any) -> str:
    """Data for the page's script, which no text in it can leave."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def touch() -> tuple[str, str]:
    """(JavaScript, CSS) of the interactive parts: highlighted rows, tokens, arrow keys."""
    script, css = beside(__file__, "touch.js", "touch.css")
    return script, css


LINKED = """Point at a row or a curve, or move to a row's name with Tab and the arrow keys, to
highlight that row in all tables and figures. Press Enter or click to keep it highlighted; press
Escape to release it."""


# Where a row shows itself, in a page that is touched.
ROW_OF = '<output id="row-of" hidden></output>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
