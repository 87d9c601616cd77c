"""`rlzoo run`: trains; leaves a run folder."""

import argparse
from collections.abc import Callable
from typing import Any

from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.tools.verb import Result
from rlzoo.train.start import start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value")


def run(arguments: argparse.Namespace) -> Result:
    zoo = load_zoo()
    recipe = compose(arguments.words, zoo)
    return shown(lambda display: start(recipe, zoo, display), arguments)


def make_display(stderr: bool = False) -> Any:
    """A panel in a terminal, lines elsewhere."""
    from rlzoo.show.console import SafeConsole  # here: --help needs no rich
    from rlzoo.tools.run.live import Panelled, Plain

    console = SafeConsole(stderr=stderr)
    return Panelled(console) if console.is_terminal else Plain(console)


def shown(train: Callable[[Any], Any], arguments: argparse.Namespace) -> Result:
    """Train under a display, which shows all there is to see: the view adds nothing."""
    display = make_display(stderr=arguments.json)
    try:
        trained = train(display)
    finally:
        display.close()
    return Result({"path": str(trained.path), **trained.summary}, lambda _: ())
