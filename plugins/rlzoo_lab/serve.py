"""`rlzoo serve`: trains a policy while agents play its episodes over HTTP."""

import argparse
import os
import secrets
import shlex
import socket

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
ONE = "eval.samples=1"  # evaluations do not use sessions, and task=sessions does not play


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
            check_free(arguments.host, arguments.port)
            address = f"http://{arguments.host}:{arguments.port}/v1"
            how = f"${VARIABLE}" if given else token
            say(f"rlzoo: sessions at {address}/sessions, token {how}")
            return shown(lambda display: start(recipe, zoo, display, arguments.store), arguments)
    finally:
        if not given:
            os.environ.pop(VARIABLE, None)


def words_of(arguments: argparse.Namespace) -> list[str]:
    """The recipe's words with the sampler and its settings."""
    words = list(arguments.words)
    if taken := [word for word in words if word.startswith(OURS)]:
        raise UsageError(f"serve: this command sets {shlex.quote(taken[0])}; use --host and --port")
    keys = {word.partition("=")[0] for word in words}
    if keys.isdisjoint(("task", "task.name")):
        words += ["task=sessions", *([ONE] if "eval.samples" not in keys else [])]
    ours = {"": "sessions", ".host": arguments.host, ".port": arguments.port}
    words += [f"sampler{key}={value}" for key, value in ours.items()]
    return [*words, f"sampler.token_from={VARIABLE}"]


def check_free(host: str, port: int) -> None:
    """Raise a UsageError where the address is taken, before a model loads."""
    try:
        with socket.create_server((host, port)):
            return
    except OSError as error:
        raise UsageError(f"serve: cannot listen on {host}:{port}: {error.strerror}") from None
