"""`rlzoo doctor`: what is wrong with a run, in words.  No torch here."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.runs.folder import RunFolder, open_folder
from rlzoo.runs.record import Record
from rlzoo.tools.doctor.rules import RULES, SEVERITIES
from rlzoo.tools.doctor.series import Finding, read
from rlzoo.tools.verb import Result


def examine(run: Record) -> tuple[list[Finding], list[str]]:
    """(findings, the gravest first; names of the rules that could not be asked)."""
    findings, left_out = [], []
    for r in RULES:
        if any(len(run.series(m)) < r.least for m in r.metrics):
            left_out.append(r.name)
            continue
        found = r.judge(run)
        if found is not None:
            found.rule = r.name
            if r.metrics:
                numbers = [n for n, _ in run.points(r.metrics[0])]
                found.evidence.setdefault("steps", [numbers[0], numbers[-1]])
            findings.append(found)
    return sorted(findings, key=lambda f: SEVERITIES.index(f.severity)), left_out


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("path", metavar="RUN", help="a run folder, finished or not")


def run(arguments: argparse.Namespace) -> Result:
    folder = open_folder(arguments.path)
    try:
        record, troubles = read(folder)
    except OSError as error:
        raise RlzooError(f"{folder.path}: cannot be read: {error}") from None
    findings, left_out = examine(record)
    document = {
        "path": str(folder.path),
        "steps": len(record.steps),
        "finished": bool(record.summary),
        "folder": troubles,
        "findings": [asdict(f) for f in findings],
        "judged": [r.name for r in RULES if r.name not in left_out],
        "not_judged": left_out,
    }
    return Result(document, lambda _: show(folder, record, troubles, findings, left_out))


def show(
    folder: RunFolder,
    record: Record,
    troubles: list[str],
    findings: list[Finding],
    left_out: list[str],
) -> Iterator[Any]:
    """What the terminal shows."""
    from rich.padding import Padding
    from rich.text import Text

    styles = {"problem": "bold red", "warning": "yellow", "note": "cyan"}
    steps = len(record.steps)
    yield Text(f"{folder.path}: {steps} step{'s' * (steps != 1)}", style="bold", overflow="fold")
    for text in troubles:
        yield Text(text, style="yellow", overflow="fold")
    for found in findings:
        title = found.rule.replace("_", " ")
        yield Text.assemble("\n", (f"{found.severity}: {title}", styles[found.severity]))
        yield Padding(Text(found.what), (0, 0, 0, 2))
        yield Padding(Text.assemble(("try  ", "bold"), found.advice), (0, 0, 0, 2))
    judged = len(RULES) - len(left_out)
    wrong = sum(f.severity != "note" for f in findings)
    verdict = f"{wrong} of them found something wrong" if wrong else "nothing wrong found"
    yield Text(f"\n{judged} rules asked; {verdict}." if steps else "\nNo step to judge yet.")
    if not steps:
        return
    if left_out:
        names = ", ".join(name.replace("_", " ") for name in left_out)
        why = "too few steps, or the run has no such metric"
        yield Text(f"Not judged ({why}): {names}.", style="dim")
