import argparse
from typing import Any

from rlzoo.tools.verb import Result


def _display(as_json: bool) -> Any:
    from rich.console import Console

    from rlzoo.tools.run.live import Panelled, Plain

    console = Console(stderr=as_json)
    return Panelled(console) if console.is_terminal else Plain(console)


def command_run(arguments: argparse.Namespace) -> Result:
    from rlzoo.plugin.registry import load_zoo
    from rlzoo.recipe.compose import compose
    from rlzoo.train.start import start

    zoo = load_zoo()
    recipe = compose(arguments.words, zoo)
    return _finish(lambda display: start(recipe, zoo, display), arguments.json)


def command_resume(arguments: argparse.Namespace) -> Result:
    from rlzoo.train.start import resume

    return _finish(lambda display: resume(arguments.path, display=display), arguments.json)


def _finish(go: Any, as_json: bool) -> Result:
    display = _display(as_json)
    try:
        run = go(display)
    finally:
        display.close()
    return 0, {"path": str(run.path), **run.summary}
