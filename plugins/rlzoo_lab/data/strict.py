"""Strict parsers for line-based files: a damaged line is an error with its number."""

import csv
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlzoo.errors import DataError, UsageError

# Trainers' names for the number of a step; the first that a line has counts. COUNTERS: of trackers,
# which count the lines that were logged.
COUNTERS = ("_step", "Step")
STEPS = (
    "train/global_step", "training/global_step", "trainer/global_step", "global_step", "step",
    "rollout/step", "train/step", "eval/step", "eval/global_step", "current_steps",
    "global_step/max_steps", *COUNTERS,
)  # fmt: skip

UTF16 = (b"\xff\xfe", b"\xfe\xff")  # how such a text begins, as Windows writes it
LOSS = re.compile(
    r"(?:^|[^a-z])(?:loss|losses|err|errors?|perplexity|ppl|nll|regret|wer)(?:[^a-z]|$)",
    re.IGNORECASE,
)


def refuse_losses(where: str, metric: str) -> None:
    """Raise UsageError where a score, of which more is better, would be a loss or an error."""
    if LOSS.search(metric):
        raise UsageError(
            f"{where}: {metric!r} is a loss or an error, and a higher score is better; name "
            "another metric, such as a column of its negatives"
        )


def damaged(path: Path, line: int | None, expected: str) -> DataError:
    """The error for a file that cannot be parsed: the place, and what was expected there."""
    where = f"{path}: line {line}" if line else str(path)
    return DataError(f"{where}: expected {expected}", key=str(path), kind="damaged")


def text_lines(path: Path, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """(number from 1, line) of a text file, without a byte order mark; raises DataError if it is
    not UTF-8. errors: as in `bytes.decode`."""
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8", errors)
            except UnicodeDecodeError:
                other = ", not UTF-16" * (raw[:2] in UTF16)
                raise damaged(path, number, f"text in UTF-8{other}") from None
            yield number, line.rstrip("\r\n")


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


COMMA = re.compile(r"[-+]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+),\d+(?:[eE][-+]?\d+)?")
POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(?:[.,]\d{3})+")  # of thousands, or three decimals


def _decimal_comma(cells: list[str]) -> bool:
    """Whether `0,5` is a half in a table with these cells: in none is it a point, but for 1.234."""
    commas = {GROUPS.fullmatch(c) is None for c in cells if COMMA.fullmatch(c)}
    points = {GROUPS.fullmatch(c) is None for c in cells if POINT.fullmatch(c)}
    return bool(commas) and (not points or (True in commas and True not in points))


def csv_lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the line, column -> text); raises DataError if a line does not fit the table.

    Cells are separated by the character of `,`, `;` and tab that is most frequent in the header.
    Between `;` or tabs, `0,5` is 0.5, unless a cell of the table has a decimal point; then 1.234 is
    a thousand.
    """
    texts = (line for _, line in text_lines(path))
    header = next(texts, "")
    split = max(",;\t", key=header.count)
    reader = csv.reader(itertools.chain([header], texts), strict=True, delimiter=split)
    rows = list[tuple[int, list[str]]]()
    try:
        names = [name.strip() for name in next(reader, [])]
        names[:1] = [names[0] or "_index"] if len(names) > 1 else names  # as pandas writes it
        if not all(names) or len(set(names)) < len(names) or not names:
            raise damaged(path, 1, "a header with different column names")
        for cells in filter(any, reader):
            if len(cells) != len(names):
                raise damaged(path, reader.line_num, f"{len(names)} cells. Got {len(cells)}")
            rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise damaged(path, reader.line_num, f"a valid line of CSV ({error})") from None
    if split != "," and _decimal_comma([c.strip() for _, r in rows for c in r]):
        rows = [(n, [c.replace(".", "").replace(",", ".") if re.fullmatch(r"[-+\d.,eE ]+", c) else c
                     for c in r]) for n, r in rows]  # fmt: skip
    for number, cells in rows:
        yield number, dict(zip(names, cells, strict=True))
