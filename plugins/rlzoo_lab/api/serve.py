"""`rlzoo serve`: trains a policy while agents play its episodes over HTTP."""

import argparse
import os
import secrets
import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlzoo.cli.run.command import shown
from rlzoo.cli.verb import QUIET_HELP, STORE_HELP, WORDS_HELP, Result
from rlzoo.errors import UsageError
from rlzoo.format.text import say
from rlzoo.plugin.permissions import FOUND, allow_env
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.runs.display import Silent
from rlzoo.train.start import start

VARIABLE = "RLZOO_TOKEN"
TOKEN = ".token"  # in the run folder
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
    parser.add_argument("--quiet", action="store_true", help=QUIET_HELP)


def run(arguments: argparse.Namespace) -> Result:
    words = words_of(arguments)
    given = os.environ.get(VARIABLE)
    token = os.environ[VARIABLE] = given or secrets.token_urlsafe(24)
    sessions = f"rlzoo: sessions at http://{arguments.host}:{arguments.port}/v1/sessions, token in"

    def begun(path: Path) -> None:
        """A token of its own is left in a file that only this user can read: logs have readers."""
        if given:
            return say(f"{sessions} ${VARIABLE}")
        file = path / TOKEN
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(token + "\n")
        FOUND[VARIABLE] = f"$(cat {shlex.quote(str(file))})"
        return say(f"{sessions} {file}")

    try:
        with allow_env([VARIABLE]):
            zoo = load_zoo()
            recipe = compose(words, zoo)
            check_free(arguments.host, arguments.port)
            train = lambda shows: start(recipe, zoo, noticed(shows, begun), arguments.store)  # noqa: E731
            return shown(train, arguments)
    finally:
        FOUND.pop(VARIABLE, None)
        if given is None:
            del os.environ[VARIABLE]


def noticed(display: Silent, then: Callable[[Path], None]) -> Silent:
    """A display that also calls `then` with the run folder's path before step 1."""
    before = display.start

    def start(plan: Any, folder: Any) -> None:
        then(folder.path)
        before(plan, folder)

    display.start = start  # type: ignore[method-assign]
    return display


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
