"""The tables of `rlzoo bench`, in 80 columns, and the same as Markdown."""

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]


TITLES = {
    "estimators": "estimators: 256 responses of up to 512 tokens",
    "head": "log-prob head, forward and backward",
    "sampling": "sampling",
    "step": "a whole training step",
    "startup": "start-up",
    "scaling": "how the cost of a step grows",
    "processes": "a step on several processes, wall time",
}

HEADER = (
    *("case", "by", "tokens", "CPU s", "wall s", "tok/CPU s", "tok/s", "MB", "work MB"),
    *("faster", "mem", "of one's time"),
)


def sections(document: Row) -> Iterator[tuple[str, list[Row]]]:
    """(title, rows) of each part and model."""
    keys = dict.fromkeys((row["part"], row.get("model")) for row in document["rows"])
    for part, model in keys:
        rows = [r for r in document["rows"] if (r["part"], r.get("model")) == (part, model)]
        yield TITLES[part] + (f", {model}" if model else ""), rows


def variant(row: Row) -> str:
    """What tells a row from others of its case and of the same maker."""
    if "processes" in row:
        return f"{row['processes']} process{'es' if row['processes'] > 1 else ''}"
    return f"{row['rows']} rows" if "rows" in row else ""


def cells(row: Row) -> list[str]:
    case = ", ".join(filter(None, [row["case"], variant(row)]))
    if "error" in row:
        return [case, row["by"], *[""] * (len(HEADER) - 2)]
    return [
        case,
        row["by"],
        _number(row.get("tokens") or None),
        _number(row.get("cpu_seconds")),
        _number(row.get("wall_seconds")) if "processes" in row else "",
        _number(row.get("tokens_per_cpu_second") or None),
        _number(row.get("tokens_per_wall_second") or None),
        _number(row.get("peak_mb")),
        _number(row["peak_mb"] - row["loaded_mb"]) if row.get("loaded_mb") else "",
        f"{row['times_faster']:.2f}x" if row.get("times_faster") else "",
        f"{row['memory_share']:.2f}" if "memory_share" in row else "",
        f"{row['wall_share']:.2f}" if row.get("wall_share") else "",
    ]


def _number(x: float | None) -> str:
    if x is None:
        return ""
    if x >= 1e6:
        return f"{x / 1e6:.3g}M"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def used(rows: list[Row]) -> list[int]:
    """The columns in which some row has something to say."""
    table = [cells(row) for row in rows]
    same = len({row["by"] for row in rows}) == 1
    return [i for i in range(len(HEADER)) if any(r[i] for r in table) and not (i == 1 and same)]


def tables(document: Row) -> Iterator[Any]:
    """What a terminal shows: for each part and model its title, a rich table, notes."""
    from rich.table import Table
    from rich.text import Text

    for title, rows in sections(document):
        columns = used(rows)
        table = Table(header_style="bold", box=None, padding=(0, 1, 0, 0))
        for i in columns:
            table.add_column(HEADER[i], justify="left" if i < 2 else "right", no_wrap=True)
        last = None
        for row in rows:
            line = cells(row)
            if row["case"] == last:  # said already
                line[0] = f"  {variant(row)}"
            last = row["case"]
            table.add_row(*(Text(line[i]) for i in columns))
        yield Text(title, style="italic")  # a table's own title breaks at the table's width
        yield table
        for text in (*notes(rows), ""):
            yield Text(text)


def notes(rows: list[Row]) -> Iterator[str]:
    """What stands below a table: faults, fits, what the ratios mean."""
    from rlzoo.tools.bench.scaling import fits

    for row in rows:
        if "error" in row:
            yield f"{row['case']}, {row['by']}: {row['error']}"
    for found in fits(rows):
        what = "CPU s" if found["what"] == "cpu_seconds" else "MB"
        yield (
            f"{what} = {found['start']:.3g} + {found['slope']:.3g} x {found['axis']}, "
            f"R^2 = {found['r2']:.4f}"
        )
    if any("loaded_mb" in row for row in rows):
        yield "work MB: peak memory above what the process held before the first pass"
    if any("times_faster" in row for row in rows):
        yield "faster: rlzoo in tokens per CPU second; mem: its share of that row's memory"


def markdown(rows: list[Row]) -> str:
    columns = used(rows)
    lines = [[HEADER[i] for i in columns], ["---"] * len(columns)]
    lines += [[cells(row)[i] for i in columns] for row in rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([table, *notes(rows)])
