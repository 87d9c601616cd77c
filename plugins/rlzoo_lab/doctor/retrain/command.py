"""`rlzoo doctor`, with `--retrain`: the cause of a run's fault, by experiment. No torch here."""

import argparse
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, warn
from rlzoo.plugin.registry import load_zoo
from rlzoo.runs.folder import latest_run
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor import command as doctor
from rlzoo_lab.doctor.retrain.experiments import ALL, Experiments, as_document, control
from rlzoo_lab.doctor.series import Finding, learning
from rlzoo_lab.doctor.suspects import Suspect, suspects
from rlzoo_lab.stats import Interval
from rlzoo_lab.view.blocks import Block, Column, Table, Text, column
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.numbers import NONE, bracket, signed, three_decimals
from rlzoo_lab.view.texts import Shown

RUNS = 8  # retrainings, unless --runs sets another number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    doctor.add_arguments(parser)
    add_declared(parser, "rlzoo_lab.api.verbs:doctor")


def run(arguments: argparse.Namespace) -> Result:
    asked = [f"--{name}" for name in ("retrain", "control") if getattr(arguments, name)]
    if (arguments.runs is not None and not arguments.retrain) or (arguments.dir and not asked):
        raise UsageError("doctor: --runs requires --retrain, and --dir that or --control")
    if not asked:
        return doctor.run(arguments)
    if arguments.environment or len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)}: give a RUN, and one of them")
    most = RUNS if arguments.runs is None else arguments.runs
    if most < 1:
        raise UsageError(f"--runs: must be at least 1. Got {most}")
    arguments.path = arguments.path or latest_run()
    record = doctor.opened(arguments.path)
    if record.trainer:
        raise UsageError(f"{asked[0]}: {arguments.path} is from another trainer ({record.trainer})")
    findings, left_out = doctor.examine(record)
    if arguments.control:
        path = Path(arguments.dir) if arguments.dir else _folder(record)
        outcome, moved = control(record, load_zoo(), path, arguments)
        found = doctor.document(record, [*moved, *findings], left_out) | {"control": outcome}
        return Result(found, Shown([*doctor.blocks(found), Text(_of_control(outcome))]))
    able = in_order([s for s in suspects(record) if s.words], findings)
    if not able:
        found = doctor.document(record, findings, left_out) | {"experiments": []}
        none = "--retrain: nothing to reset: no setting or component differs from the recipe."
        return Result(found, Shown([*doctor.blocks(found), Text(none)]))
    path = Path(arguments.dir) if arguments.dir else _folder(record)
    experiments = Experiments(record, load_zoo(), path, most, arguments)
    warn(_forecast(record, min(most, len(able) + (len(able) > 1)), most))
    cause = experiments.cause(able)
    findings = _less_the_cleared(findings, experiments)
    after = experiments.best.record if experiments.best else None
    findings = [*_with(cause, findings, after), *_without(cause, record, findings, experiments)]
    findings.sort(key=lambda f: f.severity == "note")
    found = doctor.document(record, findings, left_out)
    found |= {"experiments": as_document(experiments.trials), "retrained": str(path)}
    shown = Shown([*doctor.blocks(found), *table(found)])
    return Result(found, shown, status=experiments.interrupted)


def _of_control(outcome: Mapping[str, Any]) -> str:
    still = "neither weights nor held-out score moved" if outcome["still"] else "it moved"
    before, after = (three_decimals(outcome[name]) for name in ("before", "after"))
    return (f"\nControl, {outcome['steps']} steps at learning rate 0 in {outcome['path']}: {still} "
            f"(held out {before} to {after}).")  # fmt: skip


def in_order(found: list[Suspect], findings: list[Finding]) -> list[Suspect]:
    """Suspects that a finding names first; then the most suspicious."""
    text = " ".join(f.what + f.advice for f in findings if f.severity != "note")
    return sorted(found, key=lambda s: (s.key not in text, -s.distance))


def _folder(record: Record) -> Path:
    """The same run has the same folder, so that a repeated command continues."""
    text = str(record.path.resolve()) + (record.path / "recipe.yaml").read_text(errors="replace")
    return Path("runs") / (
        f"doctor-{record.path.resolve().name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )


def _forecast(record: Record, first: int, most: int) -> str:
    seconds = record.summary.get("seconds")
    each = f" of about {seconds:.0f} s each (the time of the run)" if seconds else ""
    return f"--retrain: {first} to {most} training runs{each}; Ctrl-C keeps finished ones"


def _less_the_cleared(findings: list[Finding], experiments: Any) -> list[Finding]:
    """The findings; one that accuses a setting whose reset did not help becomes a note."""
    cleared = experiments.cleared()
    out = []
    for f in findings:
        key = f.what.partition("=")[0]
        if f.severity != "note" and key in cleared and not experiments.interrupted:
            what = (
                f"{f.what} But it is not the cause: with {key} reset, the run ends at "
                f"{cleared[key].score:.3f} ({signed(cleared[key].difference)})."
            )
            f = replace(f, severity="note", what=what)
        out.append(f)
    return out


def _with(cause: Finding | None, findings: list[Finding], after: Record | None) -> list[Finding]:
    """The cause, then what is still found where it is gone; the rest follows from it."""
    if cause is None or cause.severity == "note" or after is None:
        return [*findings, *([cause] if cause else [])]
    still = {f.rule for f in doctor.examine(doctor.opened(str(after.path)))[0]}
    kept = [f for f in findings if f.rule in still or f.severity == "note"]
    cause.so_too = [f.rule for f in findings if f not in kept]
    return [cause, *kept]


def _without(
    cause: Finding | None, record: Record, findings: list[Finding], experiments: Any
) -> list[Finding]:
    """Where no reset helps: that settings and components are not the cause."""
    trials = [t for t in experiments.trials if t.difference is not None]
    unclear = [t.reset for t in trials if t.reset.startswith("task.") and t.difference < 0]
    tested = [t.reset for t in trials if not (unclear and t.reset in (*unclear, ALL))]
    if cause is not None or not trials or experiments.interrupted:
        return []
    best = max(trials, key=lambda t: t.difference)
    known = learning(record) or any(f.severity != "note" for f in findings)
    cleared = ", ".join(experiments.cleared())
    return [
        Finding(
            "note" if known else "warning",
            f"The run was trained again with {len(trials)} sets of differences from the recipe "
            "reset, and no result is better by more than noise (best: "
            f"{best.reset}, {best.difference:+.3f})."
            + f" Not the cause: {cleared}." * bool(cleared)
            + f" Not cleared, since the data may need it: {', '.join(unclear)}." * bool(unclear),
            f"Look at what was not reset: {''.join(f'{k}, ' for k in unclear)}the task, its data "
            "and answers, and the model.",
            {"tested": tested},
            rule="no_reset_helps",
        )
    ]


def table(document: Mapping[str, Any]) -> list[Block]:
    trials, ends = document["experiments"], []
    for t in trials:
        ends.append([NONE if t["score"] is None else three_decimals(t["score"]), t["failed"]])
        if t["difference"] is not None:
            interval = f" {bracket(Interval(*t['interval']))}" if t["interval"] else ""
            ends[-1][1] = signed(t["difference"]) + interval
    heads = {"reset": "reset", "value": "value", "reset to": "usual"}
    columns = [column(head, (t[k] for t in trials), left=True) for head, k in heads.items()]
    columns.append(Column("held out", [score for score, _ in ends]))
    columns.append(Column("difference [95%]", [end for _, end in ends], left=True))
    best = next((i for i, t in enumerate(trials) if t["helps"]), None)
    shown = f"\nRetrained with the same seed, in {document['retrained']}:"
    return [Text(shown), Table(columns, best=best)]
