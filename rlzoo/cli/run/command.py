"""`rlzoo run`: trains and writes a run folder."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rlzoo.cli.verb import STORE_HELP, WORDS_HELP, Result
from rlzoo.plugin.installed import names
from rlzoo.plugin.protocols import Display
from rlzoo.plugin.sketch import load_zoo_after
from rlzoo.recipe.compose import compose
from rlzoo.train.start import start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    parser.add_argument("--store", metavar="URL", help=STORE_HELP)


def run(arguments: argparse.Namespace) -> Result:
    zoo = load_zoo_after(partial(compose, arguments.words))
    recipe = compose(arguments.words, zoo)
    return shown(lambda display: start(recipe, zoo, display, arguments.store), arguments)


def make_display(stderr: bool = False) -> Display:
    """The lab's display if it is installed, otherwise lines."""
    from rlzoo.cli.run.lines import Lines
    from rlzoo.format.console import SafeConsole  # here: --help needs no rich

    console = SafeConsole(stderr=stderr)
    console.goes_on = True
    found = names().get("display")
    display: Display = found.load().make(console) if found else Lines(console)
    return display


def shown(train: Callable[[Any], Any], arguments: argparse.Namespace) -> Result:
    """Train with a display, which shows everything, so the result has no view."""
    display = make_display(stderr=arguments.json)
    try:
        path, summary = train(display)
    finally:
        display.close()
    return Result({"path": str(path), **summary}, lambda _: ())
