"""A response as a table: a row for each token, a column for each number."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlzoo.format.numbers import number

if TYPE_CHECKING:  # loaded when a table is made
    from rich.table import Table


def token_table(
    tokens: Sequence[str],
    columns: Mapping[str, Sequence[float]],
    *,
    chosen: Sequence[bool] | None = None,
    title: str = "",
) -> "Table":
    """tokens: T readable texts. columns: name -> T numbers. chosen: which tokens the policy chose;
    the others have no numbers."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("t", justify="right")
    table.add_column("token")
    for name in columns:
        table.add_column(name.replace("_", "\n"), justify="right", no_wrap=True)
    for t, token in enumerate(tokens):
        action = chosen is None or chosen[t]
        cells = [number(values[t], 2) if action else "" for values in columns.values()]
        table.add_row(str(t), token, *cells)
    return table
