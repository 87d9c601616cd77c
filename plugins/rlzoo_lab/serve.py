"""`rlzoo serve`: trains a policy while agents play its episodes over HTTP."""

import argparse
import os
import secrets
import shlex
from functools import partial
from typing import Any

from rlzoo.cli.run.command import shown
from rlzoo.cli.verb import STORE_HELP, WORDS_HELP, Result
from rlzoo.errors import UsageError
from rlzoo.format.text import say
from rlzoo.plugin.permissions import allow_env
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.train.start import start

VARIABLE = "RLZOO_TOKEN"
OURS = ("sampler=", "sampler.host=", "sampler.port=", "sampler.token_from=")
DEFAULTS = {"task": "sessions", "eval.samples": "1"}  # evaluations play no session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    parser.add_argument("--port", type=int, default=8011, metavar="N", help="address to listen on")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="default: accept connections only from this machine",
    )
    parser.add_argument("--store", metavar="URL", help=STORE_HELP)


def run(arguments: argparse.Namespace) -> Result:
    words = words_of(arguments)
    token = os.environ.get(VARIABLE) or secrets.token_urlsafe(24)
    given = os.environ.get(VARIABLE) is not None
    os.environ[VARIABLE] = token
    try:
        with allow_env([VARIABLE]):
            zoo = load_zoo()
            recipe = compose(words, zoo)
            address = f"http://{arguments.host}:{arguments.port}/v1"
            how = f"${VARIABLE}" if given else token
            say(f"rlzoo: sessions at {address}/sessions, token {how}")
            return shown(partial(_train, recipe, zoo, arguments.store), arguments)
    finally:
        if not given:
            os.environ.pop(VARIABLE, None)


def words_of(arguments: argparse.Namespace) -> list[str]:
    """The recipe's words with the sampler and its settings."""
    words = list(arguments.words)
    if taken := [word for word in words if word.startswith(OURS)]:
        raise UsageError(f"serve: this command sets {shlex.quote(taken[0])}; use --host and --port")
    keys = {word.partition("=")[0] for word in words}
    words += [f"{key}={value}" for key, value in DEFAULTS.items() if key not in keys]
    ours = {"": "sessions", ".host": arguments.host, ".port": arguments.port}
    words += [f"sampler{key}={value}" for key, value in ours.items()]
    return [*words, f"sampler.token_from={VARIABLE}"]


def _train(recipe: Any, zoo: Any, store: str | None, display: Any) -> Any:
    return start(recipe, zoo, display, store)
