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
from rlzoo_lab.view.blocks import Block, Column, Table, Text, column
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.texts import Shown


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
    return Result(document, Shown(blocks(subjects, brief=brief)), int(failed))


def _model(words: list[str], zoo: Any) -> tuple[str, str, str, list[Any]]:
    """Checks that a model's own passes agree. words: model=NAME or model=PATH, and other keys."""
    from rlzoo.lm.build import build_policy
    from rlzoo.lm.probe import examine

    name = words[0].partition("=")[2]
    if "/" in name or Path(name).is_dir():
        words = [f"model.path={quoted(name)}", *words[1:]]
    policy = build_policy(compose(words, zoo, need_recipe=False).config)
    findings, _ = examine(policy, checkpointing=True)
    return "model", name, type(policy.model).__name__, findings


def blocks(subjects: list[tuple[str, str, str, list[Any]]], *, brief: bool) -> list[Block]:
    """What is printed of subjects (kind, name, location, results), and their faults; `brief`: only
    the numbers of checks."""
    words = {True: "passed", None: "n/a", False: "FAILED"}
    shown, faults = list[Block](), list[Block]()
    for kind, name, file, results in subjects:
        label = f"{kind} {name}"
        faults += [Text(f"{label}: {r.name}: {r.message}", "problem")
                   for r in results if r.passed is False]  # fmt: skip
        cells = {"check": [r.name for r in results], "result": [words[r.passed] for r in results],
                 "what": [r.message for r in results]}  # fmt: skip
        columns = [Column(head, texts, left=True) for head, texts in cells.items()]
        faint = [i for i, r in enumerate(results) if r.passed is None]
        shown += [Text(f"{label}  {file}", "strong"), Table(columns, faint=faint)]
    if brief:
        counts = (
            column(word, [sum(r.passed is p for r in results) for *_, results in subjects])
            for p, word in words.items()
        )
        shown = [Table([Column("component", [f"{s[0]} {s[1]}" for s in subjects]), *counts])]
    return [*shown, *faults]
