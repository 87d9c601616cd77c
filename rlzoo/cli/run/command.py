"""`rlzoo run`: trains and writes a run folder."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rlzoo.cli.verb import QUIET_HELP, STORE_HELP, WORDS_HELP, Result
from rlzoo.plugin.installed import installed
from rlzoo.plugin.sketch import load_zoo_after
from rlzoo.recipe.compose import compose
from rlzoo.runs.display import Silent
from rlzoo.train.start import start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    parser.add_argument("--store", metavar="URL", help=STORE_HELP)
    parser.add_argument("--quiet", action="store_true", help=QUIET_HELP)


def run(arguments: argparse.Namespace) -> Result:
    from rlzoo.format.console import doing  # here, and below: --help needs no rich

    with doing("loading", arguments.quiet):
        zoo = load_zoo_after(partial(compose, arguments.words))
        recipe = compose(arguments.words, zoo)
    return shown(lambda display: start(recipe, zoo, display, arguments.store), arguments)


def make_display(stderr: bool = False) -> Silent:
    """The display that another package brings, otherwise lines."""
    from rlzoo.cli.run.lines import Lines
    from rlzoo.format.console import SafeConsole

    console = SafeConsole(stderr=stderr)
    console.goes_on = True
    makers = [point.load() for point in installed("rlzoo.displays")]
    display: Silent = makers[0](console) if makers else Lines(console)
    return display


def shown(train: Callable[[Any], Any], arguments: argparse.Namespace) -> Result:
    """Train with a display, which shows everything, so the result has no view but, with --quiet,
    the folder."""
    display = Silent() if arguments.quiet else make_display(stderr=arguments.json)
    try:
        path, summary = train(display)
    finally:
        display.close()
    view = [f"run folder: {path}"] if arguments.quiet else []
    return Result({"path": str(path), **summary}, lambda _: view)
