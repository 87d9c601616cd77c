"""`rlzoo trace`: one response, token by token.  No torch here."""

import argparse
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlzoo.cli import named
from rlzoo.cli.verb import QUIET_HELP, Result
from rlzoo.errors import UsageError, nearest
from rlzoo.plugin.columns import COLUMNS, MODELS
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.keys import KEYS
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.folder import is_run, latest_run
from rlzoo_lab.data.variants import variants
from rlzoo_lab.data.weights import open_own
from rlzoo_lab.diagnose.trace.slider import slider
from rlzoo_lab.diagnose.trace.tables import blocks
from rlzoo_lab.diagnose.trace.trace import CREDITED, TYPED, Trace
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.html import page
from rlzoo_lab.view.numbers import is_number
from rlzoo_lab.view.texts import Shown
from rlzoo_lab.view.written import Written

MADE = set(CREDITED) - {"advantages"}  # columns that cannot be typed

READER = ["model=reader", "task=knows_sum"]  # what can read a prompt in any language


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.usage = (
        "rlzoo trace RUN | RECIPE [key=value ...] | --rewards R,R,... [--values V,V,...] "
        "[--prompt TEXT] [--estimator NAME,...] [--OPTION X] [--explain] ..."
    )
    sub.epilog = (
        "--OPTION X sets estimator.OPTION=X, for any option of any estimator; commas compare "
        "several values (estimator=a,b or --lam 0,1). With typed numbers, --COLUMN X,X,... sets "
        "any other column, including a plugin's (--ref-log-probs, --greedy-scores); `;` separates "
        "the rows of a group. With --log-probs, --old-log-probs and --advantages, the trace shows "
        "the policy loss."
    )
    add = sub.add_argument
    add("--html", action=Written, metavar="FILE", help="write a page with shaded tokens")
    add("--quiet", action="store_true", help=QUIET_HELP)
    add_declared(sub, "rlzoo_lab.api.verbs:trace")


def read(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """An option that is not declared is a column, or an option of an estimator."""
    arguments, rest = parser.parse_known_args(_joined(words))
    arguments.words, arguments.flags = _sorted(rest)
    return named(arguments)


def _sorted(rest: list[str]) -> tuple[list[str], list[tuple[str, str | None]]]:
    """(words, the name and value of each `--name X`) of what an open verb's parser leaves."""
    words: list[str] = []
    flags: list[tuple[str, str | None]] = []
    queue = iter(rest)
    for word in queue:
        if not word.startswith("-") or re.match(r"-\.?\d", word):
            words.append(word)
        elif word != "--":
            name, equals, value = word.partition("=")
            key = name.lstrip("-").replace("-", "_")
            flags.append((key, value if equals else next(queue, None)))
    return words, flags


def _joined(words: list[str]) -> list[str]:
    """`--values -.01,.99` as `--values=-.01,.99`: argparse would read such a list as an option."""
    out: list[str] = []
    for word in words:
        if re.match(r"-\.?\d", word) and out and re.fullmatch(r"--[\w-]+", out[-1]):
            out[-1] += f"={word}"
        else:
            out.append(word)
    return out


def run(arguments: argparse.Namespace) -> Result:
    from rlzoo.format.console import doing  # here: rich

    with doing("loading the model, one response", arguments.quiet):
        traced = trace(arguments, load_zoo())
    explain = arguments.explain or traced.source == TYPED
    moved = slider(traced)

    def made(explain: bool = explain) -> str:
        title = f"{traced.source}, response {traced.row} of {traced.rows}"
        return page(title, blocks(traced, explain)[1:], *moved)

    def write(path: Path) -> None:
        write_atomically(path, made(explain=True).encode())

    shown = Shown(blocks(traced, explain), page=made if any(moved) else None)
    return Result(asdict(traced), shown, files={"html": write})


def trace(arguments: argparse.Namespace, zoo: Any) -> Trace:
    """The requested trace."""
    runs = [w for w in arguments.words if is_run(w)]
    words = [w for w in arguments.words if not is_run(w)]
    typed, options = _typed_and_options(arguments, zoo)
    if loose := [w for w in arguments.words if is_number(w.strip("[],; "))] if typed else []:
        raise UsageError(
            "trace: separate the numbers of a column by commas without spaces: "
            f"--{next(iter(typed))} 0,0,1. Got {' '.join(loose)} after a space"
        )
    if len(runs) > 1:
        raise UsageError(f"trace: accepts only one RUN. Got {', '.join(runs)}")
    sources = [bool(runs), any(w.startswith("recipe=") for w in words), bool(typed)]
    if sum(sources) > 1:
        raise UsageError(
            "trace: takes only one of RUN, recipe=NAME, or --rewards with --values (--rewards "
            "0,0,1 --values 0.3,0.4,0.6; --scores with --kl instead of --rewards)"
        )
    if typed and (arguments.prompt or arguments.fresh or arguments.step is not None):
        raise UsageError("trace: typed numbers do not use a model; remove --prompt and --step")
    if arguments.answer is not None and arguments.prompt is None:
        raise UsageError("trace: --answer requires --prompt")
    if not any(sources):
        runs = [latest_run()]
    if runs:
        folder = open_own(runs[0], "tokens")
        from rlzoo_lab.diagnose.trace.sources import (
            of_run,  # here, and below: torch, and what loads models
        )

        words = [f"recipe={folder.path / 'recipe.yaml'}", *words]
        return of_run(folder, variants(words, options, zoo), zoo, arguments)
    if not typed.keys().isdisjoint(MODELS["teacher"]):
        words.append("teacher.path=typed")  # its numbers are there: none is loaded
    if typed and not any(w.startswith("whiten=") for w in words):
        words.append("whiten=none")  # a few typed tokens are too few to whiten
    # It trains nothing: its rows need not fill the recipe's mini-batches.
    recipes = variants(["train.minibatches=1", *words], options, zoo, need_recipe=not typed)
    if typed:
        from rlzoo_lab.diagnose.trace.typed import of_numbers

        return of_numbers(typed, recipes, zoo, row=arguments.row)
    if arguments.step is not None or arguments.fresh:
        raise UsageError("trace: --step and --fresh require a RUN")
    from rlzoo_lab.diagnose.trace.sources import of_recipe

    own = str(recipes[0].config.model.path).startswith("model/")  # these read ASCII only
    chosen = any(word.startswith(("model=", "model.")) for word in words)
    if own and not chosen and not (arguments.prompt or "").isascii():
        recipes = variants([*READER, "train.minibatches=1", *words], options, zoo)
        traced = of_recipe(recipes, zoo, arguments)
        traced.notes.insert(0, f"The prompt is not ASCII, so this trace uses {' '.join(READER)}.")
        return traced
    return of_recipe(recipes, zoo, arguments)


def _typed_and_options(
    arguments: argparse.Namespace, zoo: Any
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Typed columns, name -> text, and options of the estimator, (name, text)."""
    typed = {"rewards": arguments.rewards, "scores": arguments.scores, "kl": arguments.kl,
             "values": arguments.values, "bootstrap_values": arguments.bootstrap,
             "tokens": arguments.tokens}  # fmt: skip
    typed = {column: numbers for column, numbers in typed.items() if numbers is not None}
    options = [("name", arguments.estimator)] if arguments.estimator else []
    known = {o for e in zoo.estimators.values() for o in e.options}
    columns = {c.name for c in COLUMNS.values() if c.shape in ("B", "BT")} - MADE
    columns |= {name for name, c in zoo.columns.items() if c.shape in ("B", "BT")}
    for name, value in arguments.flags:
        if value is None:
            raise UsageError(f"--{name} needs a value")
        if name in MADE:
            raise UsageError(
                f"--{name}: an estimator (--estimator NAME) computes this from --rewards and "
                "--values; for the policy loss, give --advantages"
            )
        if name in known:
            options.append((name, value))
        elif name in columns:
            typed[name] = value
        elif name in KEYS or "." in name:
            raise UsageError(f"--{name}: write a recipe key as {name}={value}")
        else:
            declared = ["prompt", "answer", "row", "step", "bootstrap", *typed]
            if name in ("token", "index", "response"):
                raise UsageError(f"--{name}: did you mean '--row'?")
            words = [*known, *columns, *declared, "explain", "html", "json", "estimator", "fresh"]
            raise UsageError(
                f"--{name}: is neither an option of an estimator nor a column{nearest(name, words)}"
            )
    if typed and not typed.keys() & {"rewards", "scores", "advantages"}:
        raise UsageError(f"--{next(iter(typed))}: typed numbers also need --rewards or --scores")
    lost = [f"--{name}" for name in ("log_probs", "old_log_probs") if name not in typed]
    if "advantages" in typed and (lost or options):
        raise UsageError(
            "--advantages: typed advantages are for the policy loss, without an estimator: "
            f"{'give ' + ' and '.join(lost) if lost else 'remove the options of the estimator'}"
        )
    return typed, options
