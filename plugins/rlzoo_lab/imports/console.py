"""Console output of trainers: lines of verl, slime and SkyRL that contain a step's metrics."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlzoo_lab.imports.found import Row, Values
from rlzoo_lab.strict import damaged, text_lines

VERL = re.compile(r"(?:^|\s)step:(\d+) - (\S+:.+)$")
SLIME = re.compile(
    r"(?:^|\s)(?:critic-)?(perf|rollout|step|eval|passrate|multi_turn) (\d+): (\{.*)$"
)
SKYRL = re.compile(r"(?:^|\s)Step (\d+): *$")
NOT_FINITE = re.compile(r"(?<=: )(-?(?:nan|inf))(?=[,}])")
NUMPY = re.compile(r"np\.\w+\((-?[\w.+-]+)\)")
LONGEST = 4000  # lines of one printed dictionary


def trainer_of(line: str) -> str:
    """The trainer that prints such a line; empty for any other line."""
    if VERL.search(line):
        return "verl"
    if (found := SLIME.search(line)) and "/" in found[3]:
        return "slime"
    return "skyrl" if SKYRL.search(line) else ""


def verl_rows(path: Path) -> Iterator[Row]:
    """`step:1 - actor/lr:1e-06 - critic/score/mean:0.5`; other lines are skipped."""
    for number, line in text_lines(path):
        if not (found := VERL.search(line)):
            continue
        values: Values = {}
        for part in found[2].split(" - "):
            name, _, text = part.rpartition(":")
            values[name] = _number(text.strip(), path, number)
            if not name:
                raise damaged(path, number, "metrics as NAME:VALUE, with ' - ' between them")
        yield Row(int(found[1]), values)


def slime_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(kind, row) of `rollout 0: {'rollout/raw_reward': 0.5}`; the number is slime's, from 0."""
    for number, line in text_lines(path):
        if (found := SLIME.search(line)) and "/" in found[3]:
            values = _numbers(_dictionary(found[3], path, number), path, number)
            yield found[1], Row(int(found[2]), values)


def skyrl_rows(path: Path) -> Iterator[Row]:
    """`Step 1:` and below it a dictionary, whose numbers SkyRL prints as strings with four
    decimals."""
    step, start, text = -1, 0, list[str]()
    for number, line in text_lines(path):
        if found := SKYRL.search(line):
            if text:
                break
            step, start = int(found[1]), number
        elif step >= 0 and (text or line.startswith("{")):
            text.append(line)
            if line.rstrip().endswith("}"):
                yield Row(step, _numbers(_dictionary("\n".join(text), path, start), path, start))
                step, text = -1, []
        if len(text) > LONGEST:
            break
    if text:
        raise damaged(path, start, "a whole dictionary of metrics below it")


def _dictionary(text: str, path: Path, line: int) -> dict[Any, Any]:
    try:
        found = ast.literal_eval(NUMPY.sub(r"\1", NOT_FINITE.sub(r"'\1'", text)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, dict):
        raise damaged(path, line, "a dictionary of metrics, as Python prints it")
    return found


def _numbers(found: dict[Any, Any], path: Path, line: int) -> Values:
    """Its numbers, also those printed as texts; other texts and lists are left out."""
    values: Values = {}
    for name, value in found.items():
        if type(value) in (int, float):
            values[str(name)] = value
        elif isinstance(value, str) and re.fullmatch(r"-?(\d[\d.e+-]*|nan|inf)", value):
            values[str(name)] = _number(value, path, line)
    return values


def _number(text: str, path: Path, line: int) -> float:
    bare = NUMPY.sub(r"\1", text)
    try:
        return int(bare) if bare.lstrip("-").isdecimal() else float(bare)
    except ValueError:
        raise damaged(path, line, f"a number. Got {text[:40]!r}") from None
