"""Rows of one file: JSON lines or arrays, CSV, Parquet. A bad row is named by its line."""

import csv
import gzip
import importlib.util
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rlzoo.errors import DataError, first_line, nearest
from rlzoo_zoo.messages import refuse_half_characters

SUFFIXES = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv",
    ".parquet": "parquet",
}  # fmt: skip
Found = tuple[str, int, Mapping[str, Any] | None, str]  # place, number, values, fault

Opened = gzip.GzipFile | io.BufferedReader

BOM, GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)  # what reading a .gz raises
FOREIGN = {
    b"\xff\xfe": "not UTF-8 but UTF-16; `iconv -f UTF-16 -t UTF-8` converts it",
    b"\xfe\xff": "not UTF-8 but UTF-16; `iconv -f UTF-16 -t UTF-8` converts it",
    b"version https://git-lfs": "a pointer of Git LFS, not the data; `git lfs pull` gets it",
}


def kind_of_file(file: Path) -> str | None:
    """By its content, where that decides, else by its suffix; None where neither does."""
    start = _start(file)
    if start.startswith(b"PAR1") and len(start) > 4:
        return "parquet"
    if start.removeprefix(BOM).lstrip()[:1] in (b"{", b"["):
        return "jsonl"
    return SUFFIXES.get(Path(file.name.removesuffix(".gz")).suffix.lower())


def _open(file: Path) -> Opened:
    with file.open("rb") as raw:
        packed = raw.read(2) == GZIP
    return gzip.open(file) if packed else file.open("rb")


def _start(file: Path) -> bytes:
    with _open(file) as lines:
        try:
            return lines.read(200)
        except DAMAGED:
            return b""


def rows_of(file: Path, kind: str, split: str) -> Iterator[Found]:
    """The rows of a file of a known kind; a file that is something else is one bad row."""
    start, name = _start(file), str(file)
    if fault := next((fault for mark, fault in FOREIGN.items() if start.startswith(mark)), ""):
        yield f"{name}:1", 0, None, fault
        return
    begun = False
    try:
        for found in READERS[kind](file, name, split):
            begun = True
            yield found
    except DAMAGED as error:
        fault = f"a damaged .gz file: {first_line(error)}"
        if begun:
            raise DataError(f"{name}: {fault}") from None
        yield f"{name}:1", 0, None, fault


def _json(file: Path, name: str, split: str) -> Iterator[Found]:
    """JSON lines; or an array of objects, or an object that has one."""
    with _open(file) as lines:
        if _has_lines(lines, name):
            lines.seek(0)
            for index, line in enumerate(lines):
                if line.strip():
                    values, fault, _ = _parsed(line)
                    fault = fault or _fault(values, b"\\ud" in line.lower())
                    yield f"{name}:{index + 1}", index, None if fault else values, fault
            return
        lines.seek(0)
        found, fault, number = _parsed(lines.read())
        if fault:
            yield f"{name}:{number}", number - 1, None, fault
            return
        rows = found if isinstance(found, list) else _wrapped(found, name, split)
        for index, row in enumerate(rows):
            fault = _fault(row)
            yield f"{name} row {index}", index, None if fault else row, fault


def _has_lines(lines: Opened, name: str) -> bool:
    """Whether each line is a JSON value, and the file is not one."""
    first = next((line.strip() for line in lines if line.strip(BOM + b" \t\r\n")), b"")
    whole = first.removeprefix(BOM).startswith(b"[")
    whole = whole or PurePosixPath(name.removesuffix(".gz")).suffix == ".json"
    several = any(line.strip() for line in lines)
    return not whole or (several and not _parsed(first)[1])


def _parsed(text: bytes) -> tuple[Any, str, int]:
    """(the value of a JSON text, "", 0) or (None, its fault, the fault's line in it)."""
    try:
        return json.loads(text.decode("utf-8-sig")), "", 0
    except UnicodeDecodeError:
        return None, "not UTF-8", 1
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" starting at")
        return None, f"not JSON: {what} at column {error.colno}", error.lineno
    except (RecursionError, ValueError):  # nested or numbers without end
        return None, "not JSON: too large", 1


def _fault(row: Any, doubtful: bool = True) -> str:
    """The fault of a JSON value as a row. doubtful: whether it may have half a character."""
    if not isinstance(row, dict):
        return "not an object with columns"
    try:
        if doubtful:
            refuse_half_characters(row)
    except ValueError as error:
        return str(error)
    return ""


def _wrapped(found: Any, name: str, split: str) -> list[Any]:
    """The rows of an object with lists of objects, `{"data": [...]}`; else it is the only row."""
    lists = {
        key: value
        for key, value in (found.items() if isinstance(found, dict) else ())
        if isinstance(value, list) and value and all(isinstance(x, dict) for x in value)
    }
    messages = any({"role", "from"} & x.keys() for rows in lists.values() for x in rows)
    if not lists or messages:
        return [found]
    return next(iter(lists.values())) if len(lists) == 1 else chosen(lists, split, name)


def _csv(file: Path, name: str, split: str) -> Iterator[Found]:
    """A table with a header; every value is text."""
    csv.field_size_limit(2**31 - 1)  # of a whole document in a cell
    with _open(file) as raw:
        # Bytes that are not UTF-8 make a bad row, not a bad file.
        text = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
        head = text.readline()
        text.seek(0)
        separators = "\t" if ".tsv" in file.name.lower() else ",\t;|"
        # The one that divides the header into most columns; at a tie, the comma.
        separator = max(separators, key=lambda s: len(next(csv.reader([head], delimiter=s), [])))
        rows = csv.reader(text, delimiter=separator, strict=True)
        first, fault = _cells(rows)
        if fault:
            yield f"{name}:1", 0, None, fault
            return
        header = first or []
        if twice := [column for column in header if header.count(column) > 1]:
            raise DataError(f"{name}: two columns have the name {twice[0]!r}")
        index, line = 0, rows.line_num + 1
        while (found := _cells(rows))[0] is not None:
            cells, fault = found
            if cells and not fault and len(cells) != len(header):
                fault = f"has {len(cells)} cells, but the header has {len(header)}"
            if cells or fault:
                values = None if fault else dict(zip(header, cells or [], strict=True))
                yield f"{name}:{line}", index, values, fault
                index += 1
            line = rows.line_num + 1


def _cells(rows: Any) -> tuple[list[str] | None, str]:
    """(cells, fault) of the next row of a csv.reader; (None, "") at the end."""
    try:
        cells = next(rows, None)
        "".join(cells or []).encode()
    except csv.Error as error:
        return [], f"not CSV: {first_line(error)}"
    except UnicodeEncodeError:
        return [], "not UTF-8"
    return cells, ""


def _parquet(file: Path, name: str, split: str) -> Iterator[Found]:
    require("pyarrow", name)
    import pyarrow
    from pyarrow import parquet

    index = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches():
                for values in batch.to_pylist():
                    yield f"{name} row {index}", index, values, ""
                    index += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: not a Parquet file: {first_line(error)}") from None


READERS = {"jsonl": _json, "csv": _csv, "parquet": _parquet}


def chosen(parts: Mapping[Any, Any], split: str, path: str) -> Any:
    """The split that is named, or the only one."""
    if split in parts or (not split and len(parts) == 1):
        return parts[split] if split else next(iter(parts.values()))
    there = ", ".join(parts)
    wrong = f"there is no split {split!r}" if split else "name the split"
    raise DataError(f"{path}: {wrong}{nearest(split, parts)} (available: {there})")


def require(package: str, path: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise DataError(f"{path}: needs {package}: pip install 'rlzoo-llm[data]'")
