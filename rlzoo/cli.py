"""The command line. Each command imports what it needs: `--help` loads neither torch nor rich."""

import argparse
import json
import sys
import warnings
from contextlib import nullcontext, redirect_stdout
from importlib import import_module

from rlzoo import __version__
from rlzoo.errors import RlzooError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("recipe=NAME [key=value ...]", "train; leaves a run folder"),
    "resume": ("RUN", "continue an interrupted run from its last checkpoint"),
    "plugins": ("", "what there is: needs, options, source, origin, broken ones"),
    "recipes": ("", "the recipes, each with its source"),
    "show": ("recipe=NAME [key=value ...]", "the resolved recipe, and where each value came from"),
    "check": ("NAME | --all", "hold components to their contract"),
    "new": ("KIND NAME", "scaffold a plugin package"),
    "base": ("NAME --out DIR", "make an embedded base model again"),
    "sweep": ("recipe=NAME key=a,b,c seed=0,1,2 ...", "several runs, paired by seed"),
    "compare": ("RUN_OR_SWEEP ...", "runs side by side, with intervals and a verdict"),
    "diagnose": ("recipe=NAME estimator=a,b ... | RUN", "exact bias and variance of estimators"),
    "trace": ("RUN | recipe=NAME | --rewards R,R,...", "one response, token by token"),
    "doctor": ("RUN", "what is wrong with a run, in words"),
    "eval": ("RUN | model=... task=...", "score a policy: accuracy, pass@k, samples"),
    "export": ("RUN DIR", "a run's model as a transformers folder with a model card"),
    "bench": ("[CASE ...] [--peer trl]", "speed on this machine"),
    "sft": ("DATA --model MODEL --out DIR", "a supervised start: train on prompts and responses"),
    "reward": ("train DATA --model MODEL --out DIR", "train a reward model on preference pairs"),
}


# Commands with a module of their own, `rlzoo.NAME`: add_arguments(parser), command(arguments).
MODULES = (
    "sweep", "compare", "diagnose", "trace", "doctor", "eval", "export", "sft", "reward", "bench",
)  # fmt: skip


VERBS = {
    "sweep": "rlzoo.tools.sweep.command",
    "compare": "rlzoo.tools.compare.command",
    "diagnose": "rlzoo.tools.diagnose.command",
    "trace": "rlzoo.tools.trace.command",
    "doctor": "rlzoo.tools.doctor.command",
    "eval": "rlzoo.tools.eval.command",
    "bench": "rlzoo.tools.bench.command",
    "export": "rlzoo.tools.export",
    "sft": "rlzoo.tools.supervised.sft",
    "reward": "rlzoo.tools.supervised.reward",
    "run": "rlzoo.tools.run.command",
    "resume": "rlzoo.tools.run.command",
    "plugins": "rlzoo.tools.catalog.command",
    "recipes": "rlzoo.tools.catalog.command",
    "show": "rlzoo.tools.catalog.command",
    "check": "rlzoo.tools.check",
    "new": "rlzoo.tools.new",
    "base": "rlzoo.tools.supervised.base",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="rlzoo", description="A zoo of token-level RL algorithms for language models."
    )
    top.add_argument("--version", action="version", version=f"rlzoo {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (usage, text) in COMMANDS.items():
        sub = commands.add_parser(
            name, help=text, description=text, usage=f"rlzoo {name} {usage} [--json]"
        )
        sub.add_argument("--json", action="store_true", help="one JSON document on stdout")
        if name in ("run", "show"):
            sub.add_argument("words", nargs="*", metavar="key=value")
        elif name == "resume":
            sub.add_argument("path", metavar="RUN")
        elif name == "check":
            sub.add_argument("name", nargs="?", metavar="NAME")
            sub.add_argument("words", nargs="*", metavar="option=value", help="options to set")
            sub.add_argument("--all", action="store_true", help="every component there is")
        elif name == "new":
            sub.add_argument("kind", metavar="KIND")
            sub.add_argument("name", metavar="NAME")
            sub.add_argument("--dir", default=".", metavar="DIR", help="where to put it")
        elif name == "base":
            sub.add_argument("name", metavar="NAME")
            sub.add_argument("--out", required=True, metavar="DIR")
    return top


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command line; a command with a module of its own is asked for its."""
    if not argv or argv[0] not in MODULES:
        return parser().parse_args(argv)
    name = argv[0]
    usage, text = COMMANDS[name]
    own = argparse.ArgumentParser(
        prog=f"rlzoo {name}", usage=f"rlzoo {name} {usage} [--json] ...", description=text
    )
    own.set_defaults(command=name)
    own.add_argument("--json", action="store_true", help="one JSON document on stdout")
    import_module(VERBS[name]).add_arguments(own)
    return own.parse_intermixed_args(argv[1:])  # key=value may follow an option


def main(argv: list[str] | None = None) -> int:
    warnings.showwarning = _show_warning
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        if arguments.command in MODULES:
            return import_module(VERBS[arguments.command]).command(arguments)
        # With --json stdout carries one document: whatever a plugin prints goes to stderr.
        quiet = redirect_stdout(sys.stderr) if arguments.json else nullcontext()
        with quiet:
            verb = import_module(VERBS[arguments.command])
            status, document = getattr(verb, f"command_{arguments.command}")(arguments)
        if arguments.json:
            print(json.dumps(document, indent=1, ensure_ascii=False, default=str))
        return status
    except RlzooError as error:
        print(f"rlzoo: {error}", file=sys.stderr)
        return 1 if type(error).__name__ in ("RewardError", "ComponentError") else 2
    except KeyboardInterrupt:
        print("rlzoo: interrupted; `rlzoo resume RUN` goes on", file=sys.stderr)
        return 1


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    own = (category.__module__ or "").startswith("rlzoo") or "rlzoo" in filename
    text = f"rlzoo: warning: {message}" if own else f"{filename}:{lineno}: {message}"
    print(text, file=sys.stderr)
