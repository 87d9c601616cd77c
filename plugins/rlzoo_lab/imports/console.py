"""Console output of trainers: lines of verl, slime and SkyRL that contain a step's metrics.

A line may follow a progress bar, which has no end of its own, and Ray, terminals and launchers add
to it: `Line` is what the trainer printed.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlzoo.errors import DataError
from rlzoo_lab.data.strict import damaged, text_lines
from rlzoo_lab.imports.found import Found, Row, Values, flat, per_rollout
from rlzoo_lab.imports.tabular import number, parsed

BEFORE = r"(?<![A-Za-z_/.-])"  # a bar may end with a digit
VERL = re.compile(BEFORE + r"step:(?P<step>\d{1,15}) - (?P<text>\S+:.+)$")
SLIME = re.compile(
    BEFORE + r"(?:critic-)?(?P<kind>perf|rollout|step|eval|passrate|multi_turn) "
    r"(?P<step>\d{1,15}): (?P<text>\{.*/.*|\{\s*)$"
)
ROLLOUT = re.compile(
    BEFORE + r"(?:perf|rollout) \d{1,15}: \{(?:.*/|\s*$)"
)  # only slime prints these
SKYRL = re.compile(BEFORE + r"Step (?P<step>\d{1,15}): *(?P<text>\{(?:'[^']+': '.*)?)?$")
CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\[\d[\d;]*m")  # also of a log without the escape
# Before each line that a worker of Ray or a process of torchrun prints, and after some.
WORKER = re.compile(r".{0,80}?(\([^()]* pid=\d+[^()]*\)|\[(?:rank|default)\d+\]:) ")
REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
PAIR = re.compile(r"\{? *'[^']+': .*$")  # the part of a line that is a dictionary's
NOT_FINITE = re.compile(r"(?<=: )(-?(?:nan|inf))(?=[,}])")
NUMPY = re.compile(r"(?:np\.\w+|tensor|array)\((-?[\w.+-]+)(?:, [^()]*)?\)")
NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)")
BAR = re.compile(r"\s.*|.*\d+%\|.*")  # what may follow a line's last number
ROUNDED = re.compile(r"-?(?:\d+\.\d{3}|nan|inf)")  # every number of verl up to 0.4.1
SMALL = re.compile(
    r"(?:^|[/_])(?:lr|kl|kl_loss|kl_coeff?|(?:pg_|vf_|values_)?clipfrac\w*|"
    r"loss_metrics/clip_ratio|grad_norm)$"
)
LONGEST = 4000  # lines of one printed dictionary
# verl's settings as pprint writes them: each line but the last ends with a comma or goes deeper.
SETTINGS = re.compile(r" *\{'(?:actor_rollout_ref|algorithm|data)': \{")
GLUED = re.compile(r",\((?:[^()']* )?pid=\d+[^()']*\).*$")  # another worker's, without a line break
SETTING = re.compile(r" +(?:['\"{\[(]|-?\d|None|True|False)")


class Line(NamedTuple):
    """number: from 1; worker: the process that printed it, where that is marked."""

    number: int
    worker: str
    text: str


def trainer_of(path: Path) -> str:
    """The trainer whose console output a file is; empty for any other file."""
    trainers = {"verl": VERL, "slime": ROLLOUT, "skyrl": SKYRL}
    hits = (t for line in _lines(path) for t, of in trainers.items() if of.search(line.text))
    return next(hits, "")


def _lines(path: Path, found: Found | None = None) -> Iterator[Line]:
    """The lines of a log: a carriage return ends one, too. Bytes that are not UTF-8 are U+FFFD."""
    odd = list[int]()
    for at, raw in text_lines(path, "replace"):
        odd += [at] if "\ufffd" in raw else []
        for part in raw.split("\r"):
            text = CONTROL.sub("", part)
            marked = any(mark in text for mark in (" pid=", "[rank", "[default"))
            who = WORKER.match(text) if marked else None
            text = REPEATED.sub("", text[who.end() :] if who else text)
            yield Line(at, who[1] if who else "", text)
    if odd and found:
        found.notes.append(
            f"{path}: {len(odd)} lines without metrics are not UTF-8 (line {odd[0]})"
        )


def verl_rows(path: Path, found: Found) -> list[Row]:
    """`step:1 - actor/lr:1e-06 - critic/score/mean:0.5`, and the settings, if they are printed
    before; other lines are skipped."""
    _read_settings(path, found)
    rows, rounded = list[Row](), True
    for line in _lines(path, found):
        if not (match := VERL.search(line.text)):
            continue
        values: Values = {}
        if "\ufffd" in line.text:
            raise damaged(path, line.number, "metrics in UTF-8")
        parts = NUMPY.sub(r"\1", match["text"]).split(" - ")
        for i, part in enumerate(parts, 1):
            name, _, text = part.rpartition(":") if i < len(parts) else _last(part)
            if not name:
                raise damaged(path, line.number, "metrics as NAME:VALUE, with ' - ' between them")
            values[name] = _number(text.strip(), path, line.number)
            rounded &= ROUNDED.fullmatch(text.strip()) is not None
        rows.append(Row(int(match["step"]), values, line.worker))
    if rows and rounded:
        rows = _unknown(rows, 3, found)
    return _of_workers(rows)


def _read_settings(path: Path, found: Found) -> None:
    """The dictionary that verl prints before its first step; other lines may come between."""
    head, text = Line(0, "", ""), list[str]()
    for line in itertools.takewhile(lambda line: not VERL.search(line.text), _lines(path)):
        if not text and SETTINGS.match(line.text):
            head, text = line, [line.text]
        elif text and line.worker == head.worker and SETTING.match(line.text):
            text.append(GLUED.sub(",", line.text))
        if text and (text[-1].rstrip().endswith("}") or len(text) > LONGEST):
            break
    if text:
        try:
            found.settings |= flat(_dictionary("\n".join(text), path, head.number))
        except DataError:
            found.notes.append(f"{path}: the settings in line {head.number} are not whole")


def _last(part: str) -> tuple[str, str, str]:
    """The last metric of a line, without a progress bar after it."""
    for colon in re.finditer(":", part):
        value = NUMBER.match(part, colon.end())
        if value and (value.end() == len(part) or BAR.fullmatch(part, value.end())):
            return part[: colon.start()], ":", value[0]
    return part.rpartition(":")


def _unknown(rows: list[Row], digits: int, found: Found) -> list[Row]:
    """Rows without the small quantities that so few decimals show as 0."""
    kept, lost = list[Row](), set[str]()
    for row in rows:
        gone = {k for k, v in row.values.items() if v == 0 and SMALL.search(k)}
        lost |= gone
        kept.append(replace(row, values={k: row.values[k] for k in row.values if k not in gone}))
    what = f"; what it shows as 0 is unknown: {', '.join(sorted(lost))}" if lost else ""
    found.notes.append(f"the log has only {digits} decimals{what}")
    return kept


def _of_workers(rows: list[Row]) -> list[Row]:
    """Rows without their worker, unless workers that run at the same time disagree."""
    spans: dict[str, list[int]] = {}
    seen: dict[tuple[int, str], tuple[str, float]] = {}
    disagree = False
    for i, row in enumerate(rows):
        spans.setdefault(row.run, []).append(i)
        for name, v in row.values.items():
            who, other = seen.setdefault((row.step, name), (row.run, v))
            disagree |= who != row.run and other != v and v == v
    ends = sorted((at[0], at[-1]) for at in spans.values())
    apart = all(before[1] < after[0] for before, after in itertools.pairwise(ends))
    return rows if disagree and not apart else [replace(row, run="") for row in rows]


def _printed(
    path: Path, header: re.Pattern[str], into: Found
) -> Iterator[tuple[re.Match[str], str, Values]]:
    """(header, who printed it, the numbers) of each dictionary after a header, on its line or on
    those below it. Lines of other workers in between are skipped."""
    head, at, text = None, Line(0, "", ""), list[str]()
    for line in _lines(path, into):
        if found := header.search(line.text):
            if text:
                break
            head, at, text = found, line, [found["text"]] if found["text"] else []
        elif head and line.worker == at.worker and (pair := PAIR.search(line.text)):
            text += [pair[0]] if text or pair[0][0] == "{" else []
        else:
            continue
        if head and text and "}" in text[-1]:
            whole = "\n".join(text)
            values = _dictionary(whole[: whole.rindex("}") + 1], path, at.number)
            yield head, at.worker, _numbers(values, path, at.number)
            head, text = None, []
        if len(text) > LONGEST:
            break
    if text:
        raise damaged(path, at.number, "a whole dictionary of metrics")


def skyrl_rows(path: Path, found: Found) -> list[Row]:
    """`Step 1:` and below it a dictionary, whose numbers SkyRL prints as strings with four
    decimals. They do not show a small learning rate, so one of 0 is left out."""
    rows = [
        Row(int(head["step"]), values, who) for head, who, values in _printed(path, SKYRL, found)
    ]
    return _of_workers(_unknown(rows, 4, found))


def slime_rows(path: Path, found: Found) -> list[Row]:
    """`rollout 0: {'rollout/raw_reward': 0.5}`, counted from 0. An evaluation before the first
    rollout is rlzoo's step 0; other numbers are one more. Optimizer steps have a count of their
    own, several to a rollout."""
    trained, out, steps, rollouts = False, list[Row](), list[Row](), set[int]()
    for head, _, values in _printed(path, SLIME, found):
        kind, row = head["kind"], Row(int(head["step"]), values)
        trained |= kind in ("step", "rollout")
        if kind == "step":
            steps.append(row)
            continue
        if kind != "eval":
            rollouts.add(row.step)
        before = kind == "eval" and row.step == 0 and not trained
        out.append(Row(0 if before else row.step + 1, row.values))
    made = per_rollout(steps, rollouts, found)
    return out + [replace(row, step=row.step + 1) for row in made]


def _dictionary(text: str, path: Path, line: int) -> dict[Any, Any]:
    if "\ufffd" in text:
        raise damaged(path, line, "metrics in UTF-8")
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
        if isinstance(value, str) and NUMBER.fullmatch(value):
            value = _number(value, path, line)
        if (known := number(value)) is not None:
            values[str(name)] = known
    return values


def _number(text: str, path: Path, line: int) -> float:
    if (value := parsed(text)) is None:
        raise damaged(path, line, f"a number. Got {text[:40]!r}")
    return value
