"""Code shared by all verbs: their results, and the only place that prints them.

A verb is a module with `add_arguments(parser)` and `run(arguments) -> Result`; with `read(parser,
words)`, it parses its words itself, such as options that only plugins define.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.format.text import printable, say

WORDS_HELP = "the name of a recipe, and settings"
QUIET_HELP = "no progress, only the result"
STORE_HELP = "also copy the folder to a URL after each checkpoint: s3://bucket/a"


GROUPS = ("train", "study", "compare", "plug in", "carry over")


@dataclass(frozen=True)
class Verb:
    """A verb as `rlzoo help` lists it.

    usage, help: the arguments after its name, and its purpose. module: where its `add_arguments`
    and `run` are, imported when the verb is used; "" for a verb of parts. examples: (what to type,
    what it does).
    group: one of `GROUPS`, under which the help lists it; any other is listed last.
    """

    usage: str
    help: str
    module: str
    examples: tuple[tuple[str, str], ...] = ()
    group: str = ""


@dataclass
class Result:
    """The result of a verb.

    document: what --json prints.
    view:     console -> what is printed without --json, made only then: strings as they are, and
              what rich renders.
    status:   the process's exit status.
    notes:    lines for stderr.
    files:    option that names a file -> what writes it.
    """

    document: Any
    view: Callable[[Any], Iterable[Any]]
    status: int = 0
    notes: Iterable[str] = ()
    files: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)


def work(verb: Any, arguments: Any) -> Result:
    """Run a verb and write the files that its options name."""
    result: Result = verb.run(arguments)
    for option, write in result.files.items():
        if path := getattr(arguments, option):
            _write(option, Path(path), write)
    return result


def perform(verb: Any, arguments: Any) -> int:
    """Run a verb and print its result; returns the exit status.

    With --json, stdout has only one document: the output of plugins, libraries and their processes
    goes to stderr.
    """
    with _all_to_stderr() if arguments.json else nullcontext():
        result = work(verb, arguments)
    if arguments.json:
        print(_json(result.document))
    else:
        from rlzoo.format.console import SafeConsole  # here: --json and a fault need none of it

        console = SafeConsole()
        for part in result.view(console):
            text = isinstance(part, str)  # `out` is `print` that survives a reader who has gone
            console.out(printable(part), highlight=False) if text else console.print(part)
        for option in result.files:
            if path := getattr(arguments, option):
                console.out(printable(f"written: {path}"), highlight=False)
    for note in result.notes:
        say(f"rlzoo: {note}")
    return result.status


def _json(document: Any) -> str:
    """JSON; characters that a terminal cannot show are written as JSON's own escapes."""
    text = json.dumps(document, indent=1, ensure_ascii=False, default=str)
    escape = lambda char: json.dumps(char)[1:-1]  # noqa: E731
    return "".join(c if c.isprintable() or c == "\n" else escape(c) for c in text)


@contextmanager
def _all_to_stderr() -> Iterator[None]:
    """Also what is written to the descriptor itself."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()  # sys.__stdout__, which some print to, holds back what it is given
        os.dup2(kept, 1)
        os.close(kept)


def _write(option: str, path: Path, write: Callable[[Path], Any]) -> None:
    try:
        if path.is_symlink() and not str(path).startswith("/dev/"):
            raise RlzooError(f"--{option}: {path} is a link; write to {os.readlink(path)} instead")
        write(path)
    except OSError as error:
        place = error.filename or path  # one of a folder's
        raise RlzooError(f"--{option}: cannot write {place}: {error.strerror}") from None
