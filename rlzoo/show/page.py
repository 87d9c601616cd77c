"""One HTML page that needs nothing else: no script, no network, light and dark as the reader's
system is."""

from collections.abc import Iterable
from html import escape

from rlzoo.show.figure import COLOURS

# name -> (light, dark), beside the figures' colours
PAPER = {
    "page": ("#ffffff", "#14171d"),
    "card": ("#f6f7f9", "#1c2028"),
    "good": ("#0b7a4b", "#4cd69b"),
    "bad": ("#b3261e", "#ff8a80"),
}

_CSS = """
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 82rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Noto Sans CJK SC", sans-serif;
  overflow-wrap: anywhere }
h1 { font-size: 1.65rem; line-height: 1.25; margin: 0 0 .25rem }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem }
p { margin: .5rem 0 } .muted, figcaption { color: var(--muted); font-size: .9rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem }
th, td { padding: .4rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--faint) }
th { color: var(--muted); font-weight: 600 } .left { text-align: left }
figure { margin: 2rem 0 } figure svg { width: 100%; height: auto; display: block }
@media print { body { max-width: none } figure { break-inside: avoid } }
"""


def page(title: str, blocks: Iterable[str], css: str = "") -> str:
    """The document: its title as text, its blocks as HTML, and what `css` adds to the house's."""
    light, dark = (_variables(theme) for theme in (0, 1))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{tag('title', title)}\n<style>\n:root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{_CSS.strip()}\n{css.strip()}\n</style></head><body>\n{tag('h1', title)}\n"
        + "\n".join(blocks)
        + "\n</body></html>\n"
    )


def _variables(theme: int) -> str:
    pairs = {name: colour[1:] for name, colour in COLOURS.items()} | PAPER
    return " ".join(f"--{name}: {pair[theme]};" for name, pair in pairs.items())


def tag(name: str, text: str, kind: str = "") -> str:
    """An element around a text, which is escaped; `kind` is its class."""
    return f"<{name}{_class(kind)}>{escape(text)}</{name}>"


def row(cells: Iterable[str], kind: str = "") -> str:
    """A row of a table; its cells are HTML."""
    return f"<tr{_class(kind)}>{''.join(cells)}</tr>"


def table(head: Iterable[str], rows: Iterable[str]) -> str:
    """Cells of the head and rows are HTML; a wide table scrolls by itself."""
    return (
        f'<div class="scroll"><table><thead>{row(head)}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
