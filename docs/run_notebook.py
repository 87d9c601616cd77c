"""Runs docs/first-half-hour.ipynb and writes it with what came out: `python docs/run_notebook.py`.

It trains for a minute or two. The tests run the same cells with smaller sizes.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("first-half-hour.ipynb")


def executed(folder: str | Path, changes: dict[str, str] | None = None, more: Any = ()) -> Any:
    """The notebook after its cells have run in `folder`.

    changes: text of a cell -> its replacement; each must be found. more: cells to run
    after its own, (source, tags).
    """
    book = nbformat.read(NOTEBOOK, as_version=4)
    for before, after in (changes or {}).items():
        cells = [cell for cell in book.cells if before in cell.source]
        if not cells:
            raise ValueError(f"{NOTEBOOK.name} has no cell with {before!r}")
        for cell in cells:
            cell.source = cell.source.replace(before, after)
    for source, tags in more:
        book.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}))
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=600, kernel_name="python3", resources=place).execute()
    return book


def stable(book: Any) -> Any:
    """Without times, names of this machine and messages about its load."""
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for i, cell in enumerate(book.cells):
        cell.id = f"cell-{i}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if "still loading" not in o.get("text", "")]
    return book


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(stable(executed(folder)), NOTEBOOK)
    print(NOTEBOOK, f"{NOTEBOOK.stat().st_size / 1024:.0f} KiB", file=sys.stderr)
