"""The table as a page of the docs, docs/components/architectures.md."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path

from invariants.architecture_table.checks import Cell, Row

TEXT = """\
# Architectures

<!-- written by tests/invariants/make_model_table.py -->

Which architectures of transformers does rlzoo support? {count} tiny random models were tested: {summary}. Each cell is
the largest error compared with plain transformers, one row at a time: of log-probs, entropy and values (scoring),
gradients, sampled tokens, and checkpointing and export (again). The last column shows whether a pass reads a group's
prompt once. Numbered lines explain refusals and notes. `python tests/invariants/make_model_table.py` writes this page
(here with transformers {transformers} and torch {torch}).

## The table

{table}

{lines}
"""  # noqa: E501

COLUMNS = {
    "scoring": ("log-probs", "entropy", "values"),
    "gradients": ("actor gradient", "critic gradient"),
    "sampling": ("sampling", "top-k", "top-p", "top-k and top-p"),
    "again": ("checkpointing", "export"),
}
"""Columns of the page, each of these cells."""


def write(page: Path, rows: list[Row]) -> None:
    """Write the page of all rows."""
    lines: list[str] = []
    head = ["architecture", *COLUMNS, "prompt once"]
    table = [f"|{'|'.join(head)}|", "|" + "---|" * len(head)]
    for row in rows:
        noted = [number(note, lines) for note in row.notes]
        each = {name: shown(cell, lines) for name, cell in row.cells.items()}
        cells = [together([each[name] for name in names]) for names in COLUMNS.values()]
        once = {True: "yes", False: "no", None: ""}[row.trees]
        name = f"{row.name} {','.join(noted)}".rstrip()  # `[5] [6]` is a link in Markdown
        table.append(f"|{'|'.join([name, *cells, once])}|")
    text = TEXT.format(
        count=len(rows),
        summary=summary(rows),
        transformers=version("transformers"),
        torch=version("torch").partition("+")[0],
        table="\n".join(table),
        lines="\n".join(f"{i}. {told(line)}" for i, line in enumerate(lines, 1)),
    )
    page.write_text(text.rstrip() + "\n", encoding="utf-8")


def summary(rows: list[Row]) -> str:
    kinds = Counter(worst(row) for row in rows)
    words = {
        "right": "work",
        "noted": "work in part (with a note)",
        "refused": "are refused in part or as a whole",
        "wrong": "**are wrong**",
    }
    return ", ".join(f"{kinds[kind]} {text}" for kind, text in words.items() if kinds[kind])


def worst(row: Row) -> str:
    kinds = {cell.kind for cell in row.cells.values()}
    return next(kind for kind in ("wrong", "refused", "noted", "right") if kind in kinds)


def shown(cell: Cell, lines: list[str]) -> str:
    """A cell: its error if it is right, else its kind and the number of its line."""
    size = "" if cell.error is None else f"{cell.error:.0e}".replace("e-0", "e-")
    size = "0" if cell.error == 0 else size
    if cell.kind == "right":
        return size
    kind = "**WRONG**" if cell.kind == "wrong" else cell.kind
    parts = [kind, size, number(cell.text, lines) if cell.text else ""]
    return " ".join(filter(None, parts))


def together(cells: list[str]) -> str:
    """Cells that share a column: the largest error if all are right, else what is not, with the
    largest error of each line."""

    odd: dict[str, str] = {}
    for cell in sorted((c for c in cells if "[" in c), key=lambda c: c.count(" ")):
        kind, *found, line = cell.split()
        known = odd.get(f"{kind} {line}", "").split()[1:-1]
        if not (found and known) or float(found[0]) > float(known[0]):
            odd[f"{kind} {line}"] = cell
    return ", ".join(odd.values()) or max(cells, key=lambda cell: float(cell or 0))


def number(line: str, lines: list[str]) -> str:
    """The line's number in brackets; a new line is added."""
    if line not in lines:
        lines.append(line)
    return f"[{lines.index(line) + 1}]"


def told(line: str) -> str:
    return line.replace("<", "\\<").replace("|", "\\|")
