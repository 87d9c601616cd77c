"""`rlzoo check`: checks that components, or a model, meet their contract."""

import argparse
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, UsageError
from rlzoo.plugin.component import KINDS
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs
from rlzoo_lab.data.words import quoted, read_options
from rlzoo_lab.view.declared import add_declared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("words", nargs="*", metavar="option=value", help="options to set")
    add_declared(parser, "rlzoo_lab.api.verbs:check")


def run(arguments: argparse.Namespace) -> Result:
    if bool(arguments.name) == arguments.all:
        raise RlzooError("check: give model=PATH, the NAME of a component, or --all")
    from rlzoo_lab.kit import checks, foreign  # here: they load torch

    if arguments.name and foreign.is_foreign(arguments.name):
        return _result(foreign.check(arguments.name, arguments.words, arguments.map), brief=False)
    zoo = load_zoo()
    if arguments.name and arguments.name.startswith(("model=", "model.path=")):
        subjects = [_model([arguments.name, *arguments.words], zoo)]
    else:
        if arguments.name in list_configs("model"):
            raise UsageError(f"{arguments.name} is a model; write model={arguments.name}")
        components = list(zoo) if arguments.all else checks.named(arguments.name, zoo)
        options = read_options(arguments.words)
        subjects = [
            (KINDS[c.kind].singular, c.name, c.file, checks.run_checks(c, zoo, options))
            for c in components
        ]
    return _result(subjects, brief=arguments.all)


def _result(subjects: list[tuple[str, str, str, list[Any]]], *, brief: bool) -> Result:
    document = [
        {"kind": kind, "component": name, "file": file, **vars(r)}
        for kind, name, file, results in subjects
        for r in results
    ]
    failed = any(line["passed"] is False for line in document)
    return Result(document, lambda _: checks_table(subjects, brief=brief), int(failed))


def _model(words: list[str], zoo: Any) -> tuple[str, str, str, list[Any]]:
    """Checks that a model's own passes agree; `words`: `model=NAME` or `model=PATH`, and other
    keys."""
    from rlzoo.lm.build import build_policy
    from rlzoo.lm.probe import examine

    name = words[0].partition("=")[2]
    if "/" in name or Path(name).is_dir():
        words = [f"model.path={quoted(name)}", *words[1:]]
    policy = build_policy(compose(words, zoo, need_recipe=False).config)
    findings, _ = examine(policy, checkpointing=True)
    return "model", name, type(policy.model).__name__, findings


def checks_table(subjects: list[tuple[str, str, str, list[Any]]], *, brief: bool) -> list[Any]:
    """A row per check of each subject (kind, name, location, results); `brief`: a row per subject,
    with its faults."""
    from rich.table import Table  # here: --help needs no rich
    from rich.text import Text

    words = {True: "passed", False: "FAILED", None: "n/a"}
    styles = {True: "green", False: "bold red", None: "dim"}
    table = Table(title="conformance", title_justify="left")
    columns = ("component", "passed", "n/a", "failed") if brief else ("check", "", "what")
    longest = max((len(r.name) for *_, checked in subjects for r in checked), default=0)
    for title in columns:  # the names of checks in one piece; a label may be a long path
        table.add_column(title, overflow="fold", min_width=longest if title == "check" else None)
    faults: list[Any] = []
    for kind, name, file, checked in subjects:
        label = f"{kind} {name}"
        if brief:
            counts = [sum(r.passed is p for r in checked) for p in (True, None, False)]
            table.add_row(label, *map(str, counts), style="bold red" if counts[2] else "")
            faults += [
                Text(f"{label}: {r.name}: {r.message}", style="red")
                for r in checked
                if r.passed is False
            ]
        else:
            table.add_section()
            table.add_row(Text(label, style="bold"), "", file)
            for r in checked:
                table.add_row(r.name, Text(words[r.passed], style=styles[r.passed]), r.message)
    return [table, *faults]
