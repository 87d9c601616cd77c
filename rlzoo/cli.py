"""The command line: a table of verbs, and how one is found, read and run.

Each verb's module is imported when it is asked for: `--help` loads neither torch nor rich.
"""

import argparse
import os
import re
import sys
import warnings
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from rlzoo import __version__
from rlzoo.errors import RlzooError, of_the_machine
from rlzoo.plugin.permissions import allow_env
from rlzoo.show.text import printable
from rlzoo.tools.verb import perform

# name -> usage, help, and where it is not NAME.command, the module in rlzoo.tools
VERBS: dict[str, tuple[str, ...]] = {
    "run": ("recipe=NAME [key=value ...]", "train; leaves a run folder"),
    "resume": ("RUN", "continue an interrupted run from its last checkpoint", "run.resume"),
    "plugins": ("", "what there is: needs, options, source, origin, broken ones",
                "catalog.plugins"),
    "recipes": ("", "the recipes, each with its source", "catalog.recipes"),
    "show": ("recipe=NAME [key=value ...]", "the resolved recipe, and where each value came from",
             "catalog.show"),
    "check": ("NAME | model=PATH | --all", "hold components or a model to a contract", "check"),
    "new": ("KIND NAME", "scaffold a plugin package", "new"),
    "base": ("TASK [key=value ...] --out DIR",
             "a small model that is sometimes right at a task: a start for RL", "supervised.base"),
    "sweep": ("recipe=NAME key=a,b,c seed=0,1,2 ...", "several runs, paired by seed"),
    "compare": ("RUN_OR_SWEEP ...", "runs side by side, with intervals and a verdict"),
    "diagnose": ("recipe=NAME estimator=a,b ... | RUN", "exact bias and variance of estimators"),
    "advise": ("recipe=NAME train.steps=N [estimator=a,b ...]",
               "which estimator and lambda to prefer, by a short pilot"),
    "trace": ("RUN | recipe=NAME | --rewards R,R,...", "one response, token by token"),
    "doctor": ("RUN", "what is wrong with a run, in words"),
    "report": ("RUN [--out FILE]", "one page of a run: curves, groups, tokens"),
    "eval": ("RUN | model=... task=...", "score a policy: accuracy, pass@k, samples"),
    "export": ("RUN DIR", "a run's model as a transformers folder with a model card", "export"),
    "bench": ("[CASE ...] [--peer trl]", "speed on this machine"),
    "sft": ("DATA --model MODEL --out DIR", "a supervised start: train on prompts and responses",
            "supervised.sft"),
    "reward": ("train DATA --model MODEL --out DIR", "train a reward model on preference pairs",
               "supervised.reward"),
}  # fmt: skip


def find_verb(name: str) -> Any:
    """The module of a verb."""
    if name not in VERBS:
        return import_module(brought()[name])
    (module,) = VERBS[name][2:] or (f"{name}.command",)
    return import_module(f"rlzoo.tools.{module}")


def brought() -> dict[str, str]:
    """The modules of verbs that plugins bring: entry points of the group `rlzoo.verbs`.

    Such a module is as a verb's in rlzoo.tools; its docstring's first line and its `USAGE` are what
    the table has of the others.
    """
    return {point.name: point.value for point in entry_points(group="rlzoo.verbs")}


def _described(name: str) -> tuple[str, str]:
    """A verb's usage and help."""
    if name in VERBS:
        return VERBS[name][0], VERBS[name][1]
    verb = find_verb(name)
    return verb.USAGE, (verb.__doc__ or "").strip().split("\n")[0].rstrip(".")


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command line; its verb is asked for its own. Exits where they are bad."""
    if not argv or (argv[0] not in VERBS and argv[0] not in brought()):
        return _table().parse_args(argv)  # --help, --version, or a fault
    name, *words = argv
    usage, text = _described(name)
    verb = find_verb(name)
    free = hasattr(verb, "sort_out")
    parser = argparse.ArgumentParser(
        prog=f"rlzoo {name}",
        usage=f"rlzoo {name} {usage} [--json] ...",
        description=text,
        allow_abbrev=not free,
    )
    parser.set_defaults(command=name)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--allow-env",
        action="append",
        default=[],
        metavar="NAME",
        help="the recipe may read this environment variable; may be given again",
    )
    verb.add_arguments(parser)
    if not free:
        return parser.parse_intermixed_args(words)  # key=value may follow an option
    arguments, rest = parser.parse_known_args(_joined(words))
    verb.sort_out(arguments, rest)
    return arguments


def _joined(words: list[str]) -> list[str]:
    """`--values -.01,.99` as `--values=-.01,.99`: argparse takes such a list for an option."""
    out: list[str] = []
    for word in words:
        if re.match(r"-\.?\d", word) and out and re.fullmatch(r"--[\w-]+", out[-1]):
            out[-1] += f"={word}"
        else:
            out.append(word)
    return out


def _table() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="rlzoo", description="A zoo of token-level RL algorithms for language models."
    )
    top.add_argument("--version", action="version", version=f"rlzoo {__version__}")
    verbs = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [*VERBS, *(name for name in brought() if name not in VERBS)]:
        verbs.add_parser(name, help=_described(name)[1])
    return top


def main(argv: list[str] | None = None) -> int:
    warnings.showwarning = _show_warning
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        with allow_env(arguments.allow_env):
            status = perform(find_verb(arguments.command), arguments)
        sys.stdout.flush()
        return status
    except RlzooError as error:
        print(f"rlzoo: {printable(str(error))}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # its reader has gone: `rlzoo plugins | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where the rest goes at exit
        return 1
    except Exception as error:
        said = of_the_machine(error)
        if said is None:
            raise  # a bug: its traceback is what helps
        print(f"rlzoo: {printable(said)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        how = getattr(stopped, "__notes__", [])  # to go on
        print("; ".join([f"rlzoo: {stopped or 'interrupted'}", *how]), file=sys.stderr)
        return 1


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    own = (category.__module__ or "").startswith("rlzoo") or "rlzoo" in filename
    text = f"rlzoo: warning: {message}" if own else f"{filename}:{lineno}: {message}"
    print(printable(text), file=sys.stderr)
