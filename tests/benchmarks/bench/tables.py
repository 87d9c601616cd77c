"""The tables of `python tests/benchmarks/bench`, in 80 columns, and the same as Markdown."""

from collections.abc import Callable, Iterator
from typing import Any

from bench.runner import Row
from bench.scaling import fits

TITLES = {
    "estimators": "estimators: 256 responses of up to 512 tokens",
    "head": "log-prob head, forward and backward",
    "sampling": "sampling",
    "step": "a whole training step",
    "phases": "the phases of a step",
    "startup": "start-up",
    "scaling": "how the cost of a step grows",
    "processes": "wall time of a step on several processes",
    "gpu": "on a device",
}


def variant(row: Row) -> str:
    """The settings that distinguish a row from other rows of the same case and library."""
    if "processes" in row:
        return f"{row['processes']} process{'es' if row['processes'] > 1 else ''}"
    return f"{row['rows']} rows" if "rows" in row else ""


def number(x: float | None) -> str:
    if not x:
        return ""
    if x >= 1e6:
        return f"{x / 1e6:.3g}M"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _by_wall(row: Row) -> bool:
    return "processes" in row or row.get("part") == "gpu"


def _share(x: float | None) -> str:
    return "" if x is None else f"{100 * x:.3g} %"


def _phase(row: Row, name: str) -> float | None:
    return row.get("phases", {}).get(name) if row.get("part") == "gpu" else None


# Header -> cell; a column that is empty in all rows is left out.
COLUMNS: dict[str, Callable[[Row], str]] = {
    "case": lambda row: ", ".join(filter(None, [row["case"], variant(row)])),
    "by": lambda row: row["by"],
    "tokens": lambda row: number(row.get("tokens")),
    "CPU s": lambda row: number(row.get("cpu_seconds")),
    "wall s": lambda row: number(row.get("wall_seconds") if _by_wall(row) else None),
    "tok/CPU s": lambda row: number(row.get("tokens_per_cpu_second")),
    "tok/s": lambda row: number(row.get("tokens_per_wall_second")),
    "MB": lambda row: number(row.get("peak_mb")),
    "device MB": lambda row: number(row.get("peak_device_mb")),
    "GB/s": lambda row: number(row.get("copy_gb_s")),
    "TFLOPS": lambda row: number(row.get("matmul_tflops")),
    "of copy": lambda row: _share(row.get("copy_share")),
    "MFU": lambda row: _share(row.get("mfu")),
    "gen s": lambda row: number(_phase(row, "gen")),
    "columns s": lambda row: number(_phase(row, "columns")),
    "update s": lambda row: number(_phase(row, "update")),
    "GFLOP": lambda row: number(row.get("gflop")),
    "bound, s": lambda row: number(row.get("bound")),
    "of bound": lambda row: f"{row['cpu_seconds'] / row['bound']:.2f}x" if row.get("bound") else "",
    "nats off": lambda row: number(row.get("off_mean")),
    "work MB": lambda row: number(row["peak_mb"] - row["loaded_mb"] if "loaded_mb" in row else 0),
    "faster": lambda row: f"{row['times_faster']:.2f}x" if row.get("times_faster") else "",
    "mem": lambda row: f"{row['memory_share']:.2f}" if "memory_share" in row else "",
    "of 1-process time": lambda row: f"{row['wall_share']:.2f}" if row.get("wall_share") else "",
}


def sections(document: Row) -> Iterator[tuple[str, list[Row]]]:
    """(title, rows) of each part and model."""
    keys = dict.fromkeys((row["part"], row.get("model")) for row in document["rows"])
    for part, model in keys:
        rows = [r for r in document["rows"] if (r["part"], r.get("model")) == (part, model)]
        yield TITLES[part] + (f", {model}" if model else ""), rows


def grid(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the columns in which any row has a value."""
    cells = {name: [cell(row) for row in rows] for name, cell in COLUMNS.items()}
    if len(set(cells["by"])) == 1:
        del cells["by"]
    cells = {name: column for name, column in cells.items() if any(column)}
    return list(cells), [list(line) for line in zip(*cells.values(), strict=True)]


def tables(document: Row) -> Iterator[Any]:
    """The terminal output: for each part and model a title, a rich table and notes."""
    from rich.table import Table
    from rich.text import Text

    for title, rows in sections(document):
        header, lines = grid(rows)
        table = Table(header_style="bold", box=None, padding=(0, 1, 0, 0))
        for name in header:
            justify = "left" if name in ("case", "by") else "right"
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        last = None
        for row, line in zip(rows, lines, strict=True):
            if row["case"] == last:  # named already
                line[0] = f"  {variant(row)}"
            last = row["case"]
            table.add_row(*map(Text, line))
        yield Text(title, style="italic")  # a table's own title breaks at the table's width
        yield table
        for text in (*notes(rows), ""):
            yield Text(text)


def notes(rows: list[Row]) -> Iterator[str]:
    """Notes below a table: errors, fits and the meaning of the ratios."""
    for row in rows:
        if "error" in row:
            yield f"{row['case']}, {row['by']}: {row['error']}"
    for line in fits(rows):
        what = "CPU s" if line["what"] == "cpu_seconds" else "MB"
        yield (
            f"{what} = {line['start']:.3g} + {line['slope']:.3g} x {line['axis']}, "
            f"R^2 = {line['r2']:.4f}"
        )
    if any("loaded_mb" in row for row in rows):
        yield "work MB: peak memory minus the memory of the process before the first pass"
    if any("copy_share" in row for row in rows):
        yield (
            "of copy: bytes of weights that generation reads, divided by the device's copy "
            "bandwidth"
        )
        yield "MFU: FLOP of columns and update, divided by those of its matrix product"
    if any("bound" in row for row in rows):
        yield "bound: the CPU seconds of the phase's matrix products at the rate of a large one"
    if any("times_faster" in row for row in rows):
        yield (
            "faster: tokens per CPU second of rlzoo relative to that row; mem: memory of rlzoo "
            "relative to that row"
        )


def markdown(rows: list[Row]) -> str:
    header, lines = grid(rows)
    lines = [header, ["---"] * len(header), *lines]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([table, *notes(rows)])
