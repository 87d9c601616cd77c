"""A critic by position and in bins of its values."""

from collections.abc import Mapping
from typing import Any

from rlzoo_lab.diagnose.tables import make_table, two_digits


def share(x: float) -> str:
    return f"{round(x, 2) + 0.0:.2f}" if x > -10 else "< -10"


def cell_tables(critic: Mapping[str, Any], where: str, truth: str) -> list[Any]:
    """`positions` and `bins`: lines of `critic_cells.cells`. truth: the values with which V is
    compared."""
    tables = []
    for title, key in (("position", "positions"), ("bin of V", "bins")):
        lines = critic[key]
        more = ["explained_variance", "ceiling"] if key == "positions" else []
        more = [name for name in more if name in lines[0]]
        heads = [name.removesuffix("_variance") for name in more]
        table = make_table([title, "share", "mean V", f"mean {truth}", f"V - {truth}", *heads])
        table.title, table.title_justify = f"the critic by {title}, {where}", "left"
        for line in lines:
            table.add_row(
                str(line["cell"]),
                share(line["share"]),
                *(two_digits(line[k]) for k in ("value", "return")),
                f"{line['value'] - line['return']:+.3f}",
                *(share(line[name]) for name in more),
            )
        tables.append(table)
    return tables
