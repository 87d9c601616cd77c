"""Strict parsers for line-based files: a damaged line is an error with its number."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlzoo.errors import DataError


def damaged(path: Path, line: int | None, expected: str) -> DataError:
    """The error for a file that cannot be parsed: the place, and what was expected there."""
    where = f"{path}: line {line}" if line else str(path)
    return DataError(f"{where}: expected {expected}", key=str(path), kind="damaged")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line) of a text file; raises DataError if it is not UTF-8."""
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                yield number, raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise damaged(path, number, "text in UTF-8") from None


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, object) of each line that is not empty; raises DataError."""
    for number, line in text_lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise damaged(path, number, "a JSON object")
        yield number, value


def read_json_file(path: Path) -> Any:
    """A whole JSON document; raises DataError, which names the line."""
    text = "\n".join(line for _, line in text_lines(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise damaged(path, error.lineno, "JSON") from None
    except (ValueError, RecursionError):
        raise damaged(path, None, "JSON of a reasonable size and depth") from None


def csv_lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the line, column -> text); raises DataError if a line does not fit the table."""
    texts = (line for _, line in text_lines(path))
    reader = csv.reader(texts, strict=True)
    try:
        names = next(reader, [])
        names = [name.strip().removeprefix("\ufeff") for name in names]
        if not all(names) or len(set(names)) < len(names) or not names:
            raise damaged(path, 1, "a header with different column names")
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(names):
                raise damaged(path, reader.line_num, f"{len(names)} cells. Got {len(cells)}")
            yield reader.line_num, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise damaged(path, reader.line_num, f"a valid line of CSV ({error})") from None
