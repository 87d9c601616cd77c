# PYTHON_ARGCOMPLETE_OK
"""The command line: a table of verbs, and the code that finds, parses and runs one.

May import `train` and the packages below. A verb's module is imported on first use: `--help` loads
neither torch nor rich. All other verbs come from entry points of the group `rlzoo.verbs`.

    guide       first steps, and the keys
    plugins     `rlzoo plugins`: the components, and plugins that were left out
    recipes     `rlzoo recipes`: the recipes
    run         `run` and `resume`, and their output
    verb        code shared by the verbs
"""

import argparse
import atexit
import difflib
import gc
import os
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any, NoReturn

from rlzoo import __version__
from rlzoo.cli import guide
from rlzoo.cli.verb import Verb, perform
from rlzoo.errors import RecipeError, RlzooError, in_line, nearest, of_the_machine
from rlzoo.format.text import printable, printable_logs, say
from rlzoo.plugin.component import KINDS
from rlzoo.plugin.installed import installed
from rlzoo.plugin.permissions import allow_env
from rlzoo.plugin.protocols import Completer
from rlzoo.train.interrupt import stopped_in_words

VERBS = {
    "run": Verb(
        "RECIPE [key=value ...]",
        "train a model and write a run folder",
        "rlzoo.cli.run.command",
        examples=(
            ("rlzoo run ppo_gae", "the recipe ppo_gae, unchanged"),
            ("rlzoo run grpo task=reverse_dense seed=1", "change the task and the seed"),
            ("rlzoo run ppo_gae estimator=rloo", "change only the estimator"),
            ("rlzoo run ppo_gae model.path=DIR", "your own transformers model"),
            ("rlzoo run runs/a/recipe.yaml run.dir=runs/b", "a run again"),
            ("rlzoo run grpo --store s3://bucket/a", "also copy the run to a URL"),
        ),
        group="train",
    ),
    "resume": Verb(
        "[RUN|URL] [train.steps=N]",
        "continue a run from its last checkpoint, or beyond its end",
        "rlzoo.cli.run.resume",
        examples=(
            ("rlzoo resume runs/a", "continue from its last checkpoint to the end"),
            ("rlzoo resume runs/a train.steps=80", "a finished run, on to step 80"),
            ("rlzoo resume s3://bucket/a", "on another machine"),
        ),
        group="train",
    ),
    "plugins": Verb(
        "[KIND] [WORD]",
        "list the components, each with a summary",
        "rlzoo.cli.plugins",
        examples=(
            ("rlzoo plugins", "all, by kind"),
            ("rlzoo plugins estimators", "one kind"),
            ("rlzoo plugins gae", "components that mention gae, with needs, options and source"),
        ),
        group="plug in",
    ),
    "recipes": Verb(
        "[WORD]",
        "list the recipes and their sources",
        "rlzoo.cli.recipes",
        examples=(
            ("rlzoo recipes", "all"),
            ("rlzoo recipes critic", "recipes that mention a critic"),
        ),
        group="train",
    ),
}


# Words of other tools.
SWITCHES = {
    "--dry-run": "`rlzoo show` prints what a run would use",
    "-o": "write run.dir=FOLDER",
    "--push-to-hub": "`rlzoo model export` writes the model's folder",
}
MEANT = {
    "train": "run", "start": "run", "continue": "resume", "list": "plugins", "ls": "plugins",
    "components": "plugins", "algorithms": "recipes", "evaluate": "eval", "test": "eval",
    "init": "new", "create": "new", "config": "show", "plot": "compare",
    "info": "plugins", "models": "plugins models", "push": "model export", "version": "--version",
    "-V": "--version", **{kind: f"plugins {kind}" for kind in KINDS},
}  # fmt: skip


# Verbs and options that are gone, and what does their work.
GONE = {
    **{part: f"use `rlzoo model {part}`" for part in ("base", "sft", "reward", "export")},
    "bridge": "use `rlzoo show --for TRAINER`",
    "advise": "use estimator=gae (lambda 0.95), or compare with `rlzoo sweep`",
    "bench": "in a checkout, python tests/benchmarks/bench measures speed",
    "fetch": "download the recipe (curl -LO URL), read it, then `rlzoo run FILE`",
    "diagnose --plot": "--html FILE has the curves",
    "diagnose --model": "`rlzoo diagnose RUN --parameters` compares gradients in a run's model",
}


@cache
def brought() -> dict[str, EntryPoint]:
    """The verbs of other packages: entry points of the group `rlzoo.verbs`, each a `Verb`. The
    point `model.sft` is a part of the verb `model`, typed as `rlzoo model sft`."""
    return {point.name.replace(".", " "): point for point in installed("rlzoo.verbs")}


def described(name: str) -> Verb:
    """A verb, without importing its module."""
    verb: Verb = VERBS[name] if name in VERBS else brought()[name].load()
    return verb


def every_verb() -> list[str]:
    """The names of the verbs, with those of other packages last; no parts of verbs."""
    return [*VERBS, *(name for name in brought() if name not in VERBS and " " not in name)]


def split(words: list[str]) -> tuple[str, list[str]]:
    """The verb that words begin with, with its part if it has parts, and the other words."""
    n = 2 if " ".join(words[:2]) in brought() else 1
    return " ".join(words[:n]), list(words[n:])


class _Parser(argparse.ArgumentParser):
    """argparse's parser, with examples in its help and the nearest option in its errors.

    takes_keys: whether the verb takes the words of a recipe.
    """

    takes_keys = False

    def examples(self) -> tuple[tuple[str, str], ...]:
        return described(self.prog.removeprefix("rlzoo ")).examples

    def format_help(self) -> str:
        """Made only where it is shown: a command that runs needs none of it."""
        end = guide.epilog(self.examples(), self.takes_keys)
        return f"{super().format_help()}\n{end}".rstrip() + "\n"

    def error(self, message: str) -> NoReturn:
        head = "unrecognized arguments: "
        if message.startswith(head):
            options = [o for action in self._actions for o in action.option_strings]
            flag, equals, value = message.removeprefix(head).split()[0].partition("=")
            key = flag.lstrip("-").replace("-", "_")
            option = f"--{key.replace('_', '-')}"
            if gone := GONE.get(f"{self.prog.removeprefix('rlzoo ')} {flag}"):
                message += f"; it is gone: {gone}"
            elif flag in SWITCHES:
                raise RlzooError(f"{flag}: there is no such option; {SWITCHES[flag]}")
            elif equals and not flag.startswith("-"):
                known = option in options
                meant = f"did you mean {option} {value}?" if known else "no settings are allowed"
                message = f"{flag}={value}: {meant}"
            elif self.takes_keys and not difflib.get_close_matches(flag, options, 1, 0.8):
                from rlzoo.recipe import elsewhere  # here: slow

                key = elsewhere.meant(key) or key
                word = key if "=" in key else f"{key}={value or 'VALUE'}"
                raise RlzooError(f"{flag}: write a recipe's key as {word}")
            else:
                message += nearest(flag, options)
        elif "required" in message and (lines := self.examples()):
            message += f"; for example: {lines[0][0]}"
        super().error(in_line(printable(message).replace("\n", r"\n")))


def parser_of(name: str) -> _Parser:
    """The parser of a verb."""
    about = described(name)
    parser = _Parser(
        prog=f"rlzoo {name}",
        usage=f"rlzoo {name} {about.usage} [--json] ...",
        description=about.help,
        allow_abbrev=False,
        formatter_class=partial(argparse.HelpFormatter, width=guide.width()),
    )
    parser.set_defaults(command=name)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    allowed = "let the recipe read this environment variable; repeatable"
    parser.add_argument("--allow-env", action="append", default=[], metavar="NAME", help=allowed)
    if about.module:
        import_module(about.module).add_arguments(parser)
    else:
        parts = [point.removeprefix(f"{name} ") for point in brought() if f"{name} " in point]
        parser.add_argument("part", choices=parts, metavar=about.usage.split()[0])
    parser.usage = guide.usage(str(parser.usage))
    positional = parser._get_positional_actions()
    for action in positional:  # argparse lists these as missing next to one that is
        action.required = action.required and action.nargs != "*"
    parser.takes_keys = any("key=value" in str(action.metavar) for action in positional)
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command line; the verb's own options by its parser. Exits where they
    are bad, and after showing help."""
    if not argv or not (argv[0] in VERBS or argv[0] in brought()):
        return _without_verb(argv)
    name, words = split(argv)
    parser = parser_of(name)
    module = described(name).module
    if read := getattr(import_module(module), "read", None) if module else None:
        arguments: argparse.Namespace = read(parser, words)
        return arguments
    arguments = parser.parse_intermixed_args(words)  # key=value may follow an option
    return named(arguments) if parser.takes_keys else arguments


def named(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a verb of recipes, with `recipe=` before the name of a recipe."""
    from rlzoo.recipe.files import list_configs
    from rlzoo.recipe.words import name_recipe

    arguments.words = name_recipe(arguments.words)
    keys = [word.partition("=")[0] for word in arguments.words if "=" in word]
    for key in dict.fromkeys(k for k in keys if keys.count(k) > 1 and k != "recipe"):
        warnings.warn(f"{key} is given {keys.count(key)} times; the last counts", stacklevel=1)
    for word in arguments.words:  # a path, or a recipe misspelt
        if "=" in word or os.path.exists(word):
            continue
        if word == "recipe":
            raise RecipeError("recipe: write recipe=NAME, or only the name")
        if near := nearest(word, list_configs("recipes")):
            raise RecipeError(f"there is no recipe {word!r}{near}")
    return arguments


def _without_verb(argv: list[str]) -> NoReturn:
    """`rlzoo` without words, `rlzoo help ...`, `--help`, `--version`, and an unknown verb."""
    first, *rest = argv or [""]
    if not first:
        print(guide.start(every_verb()))
    elif first in ("help", "-h", "--help") and rest and rest[0] in every_verb():
        parser_of(split(rest)[0]).print_help()
    elif first == "help" and rest[:1] == ["keys"]:
        print(guide.keys(rest[1:]))
    elif first in ("help", "-h", "--help") and rest in ([], ["help"]):
        print(guide.table({name: described(name) for name in every_verb()}))
    elif first == "--version":
        print(f"rlzoo {__version__}{_commit()}")
    else:
        raise RlzooError(no_verb(rest[0] if first == "help" else first))
    raise SystemExit(0)


def _commit() -> str:
    """The commit of a checkout, in brackets; empty for an installed package or without git."""
    import subprocess  # here: one option needs it
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        if (root / ".git").exists():
            text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            return f" ({text.strip()})"
    return ""


def no_verb(word: str) -> str:
    """The error for a word that is not a verb, with the nearest one."""
    from rlzoo.recipe.words import name_recipe

    if word.startswith("recipe=") or name_recipe([word]) != [word]:
        return f"the verb is missing; did you mean `rlzoo run {word}`?"
    if word in GONE:
        return f"`rlzoo {word}` is gone: {GONE[word]}"
    hint = f"; did you mean {MEANT[word]!r}?" if word in MEANT else nearest(word, every_verb())
    return f"there is no verb {word!r}{hint} (`rlzoo help` lists them)"


def main(argv: list[str] | None = None) -> int:
    warnings.showwarning = _show_warning
    _say_once.cache_clear()
    sys.excepthook = _show_traceback
    # Read when torch is loaded: a thread that waits for the others of its step sleeps.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Searching the 400,000 objects of imported libraries for cycles takes 0.5 s at the start and as
    # much at the end. A training step makes no cycles.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower() != "utf-8":
            stream.reconfigure(errors="replace")  # it lacks characters that tables are drawn with
    for point in installed("rlzoo.completers") if "_ARGCOMPLETE" in os.environ else ():
        completer: Completer = point.load()
        completer([*VERBS, *brought()], parser_of)
    try:
        try:
            with stopped_in_words(), printable_logs():
                arguments = parse(sys.argv[1:] if argv is None else argv)
                with allow_env(arguments.allow_env):
                    return perform(import_module(described(arguments.command).module), arguments)
        finally:
            sys.stdout.flush()
    except RlzooError as error:
        say(f"rlzoo: {error}")
        return error.status
    except BrokenPipeError:  # its reader has gone: `rlzoo plugins | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where the rest goes at exit
        return 1
    except Exception as error:
        line = of_the_machine(error)
        if line is None:
            raise  # a bug: its traceback is what helps
        say(f"rlzoo: {line}")
        return 1
    except KeyboardInterrupt as last:
        stopped: BaseException = last
        how: list[str] = []  # to continue
        while isinstance(stopped.__context__, KeyboardInterrupt):  # another came as it ended
            how, stopped = getattr(stopped, "__notes__", how), stopped.__context__
        how = getattr(stopped, "__notes__", how)
        say("; ".join([f"rlzoo: {str(stopped) or 'interrupted'}", *how]))
        return getattr(stopped, "status", 128 + signal.SIGINT)


def _show_traceback(kind: Any, error: BaseException, trace: Any) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    print(printable(text), end="", file=sys.stderr)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    ours = (category.__module__ or "").startswith("rlzoo") or "rlzoo" in filename
    _say_once(f"rlzoo: warning: {message}" if ours else f"{filename}:{lineno}: {message}")


@cache
def _say_once(text: str) -> None:
    """Python shows a warning once only as long as no library changes its filters."""
    say(text)
