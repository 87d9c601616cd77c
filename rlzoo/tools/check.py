"""`rlzoo check`: holds components to their contract."""

import argparse
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.plugin.component import KINDS
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.words import read_options
from rlzoo.tools.verb import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("words", nargs="*", metavar="option=value", help="options to set")
    parser.add_argument("--all", action="store_true", help="every component there is")


def run(arguments: argparse.Namespace) -> Result:
    if bool(arguments.name) == arguments.all:
        raise RlzooError("check: give the NAME of a component, or --all")
    from rlzoo import checks  # here: it loads torch

    zoo = load_zoo()
    components = list(zoo) if arguments.all else checks.named(arguments.name, zoo)
    options = read_options(arguments.words)
    results = {component: checks.run_checks(component, zoo, options) for component in components}
    document = [
        {"kind": KINDS[c.kind].singular, "component": c.name, "file": c.file, **vars(r)}
        for c, rs in results.items()
        for r in rs
    ]
    failed = any(r.passed is False for rs in results.values() for r in rs)
    return Result(document, lambda _: checks_table(results, brief=arguments.all), int(failed))


def checks_table(results: dict[Any, list[Any]], *, brief: bool) -> list[Any]:
    """A row per check of each component; `brief`: a row per component and its faults."""
    from rich.table import Table  # here: --help needs no rich
    from rich.text import Text

    words = {True: "passed", False: "FAILED", None: "n/a"}
    styles = {True: "green", False: "bold red", None: "dim"}
    table = Table(title="conformance", title_justify="left")
    columns = ("component", "passed", "n/a", "failed") if brief else ("check", "", "what")
    for name in columns:
        table.add_column(name, overflow="fold")
    faults: list[Any] = []
    for component, checked in results.items():
        label = f"{KINDS[component.kind].singular} {component.name}"
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
            table.add_row(Text(label, style="bold"), "", component.file)
            for r in checked:
                table.add_row(r.name, Text(words[r.passed], style=styles[r.passed]), r.message)
    return [table, *faults]
