"""`rlzoo doctor`: names the faults of a run, or describes the environment.

This module does not import torch.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, UsageError
from rlzoo.runs.folder import latest_run, open_folder
from rlzoo.runs.metrics import REWARD
from rlzoo_lab.data.record import Record, Unknown
from rlzoo_lab.doctor.agents import OF_IMPORTS
from rlzoo_lab.doctor.environment import environment, facts_of
from rlzoo_lab.doctor.rules import RULES
from rlzoo_lab.doctor.series import Finding, early, late, read_run
from rlzoo_lab.doctor.theirs import in_words_of
from rlzoo_lab.view.blocks import Block, Text
from rlzoo_lab.view.texts import Shown

LISTED = 12  # names of rules that a terminal still shows


def examine(run: Record) -> tuple[list[Finding], dict[str, str]]:
    """(findings, as `ranked`, in the words of the run's trainer; rules that could not run -> the
    setting that an imported run does not record, or empty: too few steps have their metrics)."""
    findings, left_out = findings_of(run)
    for f in findings:
        f.what, f.advice = (in_words_of(run.trainer, text) for text in (f.what, f.advice))
    return ranked(findings), left_out


def findings_of(run: Record) -> tuple[list[Finding], dict[str, str]]:
    """The findings of each rule by itself, in their order, and the rules that could not run."""
    findings: list[Finding] = []
    left_out = {}
    for r in RULES:
        if any(len(run.series(m)) < r.least for m in r.metrics):
            if run.trainer or OF_IMPORTS.isdisjoint(r.metrics):
                left_out[r.name] = ""
            continue
        try:
            finding = r.judge(run)
        except Unknown as unknown:
            left_out[r.name] = unknown.key
            continue
        if finding is not None:
            finding.rule = r.name
            if r.metrics:
                numbers = run.steps_of(r.metrics[0])
                finding.evidence.setdefault("steps", [numbers[0], numbers[-1]])
            findings.append(finding)
    return findings, left_out


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Causes, or the first symptom where no cause is known, with the other symptoms under the first
    of them; then asides and notes. Each in the order of the rules."""
    kinds = {r.name: (i, r.kind) for i, r in enumerate(RULES)}
    parts: dict[str, list[Finding]] = {"cause": [], "symptom": [], "aside": [], "note": []}
    for f in sorted(findings, key=lambda f: kinds[f.rule][0]):
        kind = kinds[f.rule][1]
        parts["note" if f.severity == "note" and kind != "symptom" else kind].append(f)
    loud = [f for f in parts["symptom"] if f.severity != "note"]
    notes = [f for f in parts["symptom"] if f.severity == "note"]
    heads = parts["cause"] or loud[:1]
    if heads:
        heads[0].so_too = [f.rule for f in loud if f is not heads[0]]
    return heads + parts["aside"] + parts["note"] + ([] if heads else notes)


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("path", metavar="RUN", nargs="?", help="a run folder, finished or not")


def run(arguments: argparse.Namespace) -> Result:
    if arguments.environment and arguments.path is not None:
        raise UsageError("doctor: takes either a RUN or --environment")
    if arguments.environment:
        facts = environment()
        lines = [f"{name:<16}{value}" for name, value in facts_of(facts)]
        return Result(facts, lambda _: lines)
    record = opened(arguments.path or latest_run())
    found = document(record, *examine(record))
    return Result(found, Shown(blocks(found)))


def opened(path: str) -> Record:
    """A run's record, as far as rules read it."""
    folder = open_folder(path, large=False)
    try:
        return read_run(folder)
    except OSError as error:
        raise RlzooError(f"{folder.path}: cannot be read: {error}") from None


def document(
    record: Record, findings: list[Finding], left_out: Mapping[str, str]
) -> dict[str, Any]:
    """What --json prints of a run."""
    return {
        "path": str(record.path),
        "steps": len(record.steps),
        "finished": bool(record.summary),
        "reward": [early(record, REWARD), late(record, REWARD)] if record.has(REWARD) else None,
        "trainer": record.trainer,
        "folder": record.troubles,
        "findings": [asdict(f) for f in findings],
        "judged": [r.name for r in RULES if r.name not in left_out],
        "not_judged": [name for name, key in left_out.items() if not key],
        "unknown": {name: key for name, key in left_out.items() if key},
    }


KINDS = {"problem": "problem", "warning": "warn", "note": "remark"}


def blocks(document: Mapping[str, Any]) -> list[Block]:
    """What is printed of a run."""
    steps, findings = document["steps"], document["findings"]
    head = f"{document['path']}: {steps} step{'s' * (steps != 1)}"
    if document["reward"]:
        head += "; the reward went from {:.3g} to {:.3g}".format(*document["reward"])
    shown = [Text(head, "strong")]
    shown += [Text(trouble, "warn") for trouble in document["folder"]]
    for f in findings:
        shown.append(Text(f"\n{f['severity']}: {_words(f['rule'])}", KINDS[f["severity"]]))
        lines = [f["what"], f"try  {f['advice']}"]
        if f["so_too"]:
            lines.insert(1, f"so   {', '.join(map(_words, f['so_too']))}")
        shown += [Text(line, "item") for line in lines]
    if not steps:
        return [*shown, Text("\nNo step has finished yet.")]
    wrong = sum(f["severity"] != "note" for f in findings)
    verdict = f"{wrong} found a fault" if wrong else "no fault found"
    shown.append(Text(f"\n{len(document['judged'])} rules: {verdict}."))
    if document["unknown"]:
        keys = sorted({*document["unknown"].values()})
        what = f"{len(document['unknown'])} rules, which need {', '.join(keys[:LISTED])}"
        what += " and others" * (len(keys) > LISTED)
        shown.append(Text(f"Rules not run (the run does not record a setting): {what}.", "faint"))
    if names := document["not_judged"]:
        what = f"{len(names)} rules (listed by --json)"
        if len(names) <= LISTED:
            what = ", ".join(map(_words, names))
        why = "too few steps, or the metric is missing"
        shown.append(Text(f"Rules not run ({why}): {what}.", "faint"))
    return list[Block](shown)


def _words(rule: str) -> str:
    return rule.replace("_", " ")
