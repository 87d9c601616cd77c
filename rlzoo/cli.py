"""The command line. Each command imports what it needs: `--help` loads neither torch nor rich."""

import argparse
import json
import sys
import warnings
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from rlzoo import __version__
from rlzoo.component import KINDS, RlzooError

Result = tuple[int, Any]  # exit status, and the document that --json prints

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
    import_module(f"rlzoo.{name}").add_arguments(own)
    return own.parse_intermixed_args(argv[1:])  # key=value may follow an option


def main(argv: list[str] | None = None) -> int:
    warnings.showwarning = _show_warning
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        if arguments.command in MODULES:
            return import_module(f"rlzoo.{arguments.command}").command(arguments)
        # With --json stdout carries one document: whatever a plugin prints goes to stderr.
        quiet = redirect_stdout(sys.stderr) if arguments.json else nullcontext()
        with quiet:
            status, document = globals()[f"command_{arguments.command}"](arguments)
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


def _display(as_json: bool) -> Any:
    from rich.console import Console

    from rlzoo.live import Panelled, Plain

    console = Console(stderr=as_json)
    return Panelled(console) if console.is_terminal else Plain(console)


def command_run(arguments: argparse.Namespace) -> Result:
    from rlzoo.recipe import compose
    from rlzoo.registry import load_zoo
    from rlzoo.runs import start

    zoo = load_zoo()
    recipe = compose(arguments.words, zoo)
    return _finish(lambda display: start(recipe, zoo, display), arguments.json)


def command_resume(arguments: argparse.Namespace) -> Result:
    from rlzoo.runs import resume

    return _finish(lambda display: resume(arguments.path, display=display), arguments.json)


def _finish(go: Any, as_json: bool) -> Result:
    display = _display(as_json)
    try:
        run = go(display)
    finally:
        display.close()
    return 0, {"path": str(run.path), **run.summary}


def command_plugins(arguments: argparse.Namespace) -> Result:
    from rich.console import Console

    from rlzoo.registry import load_zoo
    from rlzoo.report import plugins_view

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the broken ones are listed below
        zoo = load_zoo()
    if arguments.json:
        rows = [
            {
                "kind": KINDS[c.kind].singular,
                "name": c.name,
                "summary": c.summary,
                "needs": list(c.needs),
                "options": {
                    o.name: {"type": o.type_text, "default": o.default} for o in c.options.values()
                },
                "source": c.source,
                "origin": c.origin,
                "file": c.file,
            }
            for c in zoo
        ]
        broken = [{"origin": b.origin, "reason": b.reason} for b in zoo.broken]
        return 0, {"components": rows, "broken": broken}
    console = Console()
    for part in plugins_view(zoo, console.width):
        console.print(part)
    for b in zoo.broken:
        console.print(f"{b}", style="red", markup=False, soft_wrap=True)
    return 0, None


def command_recipes(arguments: argparse.Namespace) -> Result:
    from rlzoo.recipe import describe, list_configs, show_path

    recipes = list_configs("recipes")
    if arguments.json:
        return 0, [{"name": n, "what": describe(p), "file": str(p)} for n, p in recipes.items()]
    from rich.console import Console

    from rlzoo.report import recipes_table

    Console().print(recipes_table(recipes, describe, show_path))
    return 0, None


def command_show(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf

    from rlzoo import memory
    from rlzoo.plan import make_plan
    from rlzoo.recipe import compose
    from rlzoo.registry import load_zoo

    zoo = load_zoo()
    recipe = compose(arguments.words, zoo)
    plan = make_plan(recipe, zoo)
    for text in plan.warnings:
        warnings.warn(text, stacklevel=1)
    values = {key: OmegaConf.select(recipe.config, key) for key in sorted(recipe.origins)}
    if arguments.json:
        return 0, {
            "recipe": recipe.name,
            "values": {
                key: {
                    "value": OmegaConf.to_container(v) if OmegaConf.is_config(v) else v,
                    "origin": recipe.origins[key],
                }
                for key, v in values.items()
            },
            "needs": sorted(plan.needs),
            "critic": plan.critic,
            "reference": plan.reference,
            "memory": found.document() if (found := memory.estimate(plan)) else None,
        }
    from rich.console import Console

    from rlzoo.report import memory_view, recipe_view

    for part in [*recipe_view(recipe, values, plan), *memory_view(memory.estimate(plan))]:
        Console().print(part)
    return 0, None


def command_check(arguments: argparse.Namespace) -> Result:
    from rlzoo import checks
    from rlzoo.recipe import read_options
    from rlzoo.registry import load_zoo

    if bool(arguments.name) == arguments.all:
        raise RlzooError("check: give the NAME of a component, or --all")
    zoo = load_zoo()
    found = list(zoo) if arguments.all else checks.named(arguments.name, zoo)
    options = read_options(arguments.words)
    results = {component: checks.run_checks(component, zoo, options) for component in found}
    failed = sum(r.passed is False for rs in results.values() for r in rs)
    status = 1 if failed else 0
    if arguments.json:
        return status, [
            {"kind": KINDS[c.kind].singular, "component": c.name, "file": c.file, **vars(r)}
            for c, rs in results.items()
            for r in rs
        ]
    from rich.console import Console

    from rlzoo.report import checks_table

    console = Console()
    for table in checks_table(results, brief=arguments.all):
        console.print(table)
    return status, None


def command_new(arguments: argparse.Namespace) -> Result:
    from rlzoo import scaffold

    written = scaffold.new(arguments.kind, arguments.name, Path(arguments.dir))
    if arguments.json:
        return 0, {"files": [str(p) for p in written]}
    for path in written:
        print(path)
    folder = written[0].parent
    print(f"\nnext:  pip install -e {folder}  &&  rlzoo check {arguments.name}")
    return 0, None


def command_base(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf
    from rich.console import Console
    from rich.progress import track

    from rlzoo.columns import nearest
    from rlzoo.recipe import find_config, list_configs
    from rlzoo.registry import load_zoo

    file = find_config("base", arguments.name)
    if file is None:
        known = list_configs("base")
        raise RlzooError(
            f"no base {arguments.name!r}{nearest(arguments.name, known)} "
            f"(there are: {', '.join(known)})"
        )
    out = Path(arguments.out)
    if out.exists() and any(out.iterdir()):
        raise RlzooError(f"--out: {out} exists already and is not empty")
    from rlzoo.base import make_base

    spec: Any = OmegaConf.to_container(OmegaConf.load(file))
    zoo = load_zoo()
    tasks = {k: zoo.tasks[m["task"]](**m.get("options", {})) for k, m in spec["mix"].items()}
    console = Console(stderr=True)
    bar = iter(track(range(spec["steps"]), description=f"base {arguments.name}", console=console))

    def progress(done: int, steps: int, loss: float) -> None:
        next(bar, None)

    make_base(spec, tasks, out, progress)
    for _ in bar:
        pass
    console.print(f"made {out}")
    return 0, {"path": str(out)}
