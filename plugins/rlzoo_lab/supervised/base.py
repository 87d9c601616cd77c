"""`rlzoo model base`: a small model that has learned the format of a task that can demonstrate. No
torch at module level."""

import argparse
import shlex
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, UsageError, nearest
from rlzoo.format.text import folded
from rlzoo.plugin.protocols import abilities
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.files import find_config, list_configs
from rlzoo.runs.disk import write_json
from rlzoo_lab.data.staged import check_free, staged
from rlzoo_lab.supervised.options import refuse_beyond
from rlzoo_lab.view.written import Written

KEYS = ("task.", "rollout.max_new_tokens", "eval.")  # that play a part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="TASK", help="a task or TASK:GAME with demonstrations")
    add("words", nargs="*", metavar="key=value", help="task.*, rollout.max_new_tokens, eval.*")
    add("--out", action=Written, folder=True, required=True, metavar="DIR",
        help="where to write the model")  # fmt: skip
    add("--accuracy", type=float, default=0.3, metavar="X",
        help="stop when sampled held-out answers reach this accuracy (0.3)")  # fmt: skip
    add("--steps", type=int, default=3000, metavar="N", help="stop after at most N steps (3000)")
    add("--lr", type=float, default=2e-3, metavar="X", help="peak learning rate (0.002)")
    add("--seed", type=int, default=0, metavar="N", help="seed of weights and demonstrations (0)")
    add("--right", type=float, default=1.0, metavar="X", help="share of correct demonstrations (1)")
    add("--like", default="nano", metavar="NAME", help="use the size of this base model (nano)")


def run(arguments: argparse.Namespace) -> Result:
    zoo, name = load_zoo(), arguments.name.removeprefix("task=")
    name, _, game = name.partition(":")
    if game:  # textarena:Nim-v0
        arguments.words.insert(0, f"task.games=[{game}]")
    check_free(Path(arguments.out), "--out")
    if name == arguments.name and find_config("base", name):
        raise UsageError(f"base: {name} is a model that comes with rlzoo, model={name}; a task "
                         f"makes a new one, of its size with --like {name}")  # fmt: skip
    return _of_task(name, arguments, zoo)


def read_spec(file: Path) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.load(file))


def _of_task(name: str, arguments: argparse.Namespace, zoo: Zoo) -> Result:
    """A new base for a task; status 1 if it does not reach the requested accuracy."""
    a, bases = arguments, list_configs("base")
    file = find_config("base", a.like)
    if file is None:
        raise UsageError(
            f"--like: there is no base {a.like!r}{nearest(a.like, bases)} (available: "
            f"{', '.join(bases)})"
        )
    bounds = {
        "--accuracy": (0 < a.accuracy < 1, "must be in (0, 1)"),
        "--steps": (a.steps >= 1, "must be at least 1"),
        "--lr": (0 < a.lr < inf, "must be positive and finite"),
        "--seed": (a.seed >= 0, "must be at least 0"),
        "--right": (0 <= a.right <= 1, "must be in [0, 1]"),
    }
    refuse_beyond(bounds, vars(a))
    for word in a.words:
        if not word.startswith(KEYS):
            raise UsageError(
                f"base: {word} has no effect (supported: {', '.join(KEYS)}; --steps, --lr)"
            )
    _check_demonstrates(name, zoo, bases)
    from rlzoo_lab.supervised.task_base import make_task_base

    told = {"lr": a.lr, "seed": a.seed, "right": a.right}
    spec = read_spec(file) | {"steps": a.steps} | told
    with staged(Path(a.out), "--out") as aside:
        report = make_task_base(name, a.words, zoo, spec, a.accuracy, aside)
        report |= {"like": a.like} | told
        write_json(aside / "report.json", report)
    out, words = shlex.quote(a.out), " ".join(map(shlex.quote, [f"task={name}", *a.words]))
    reached = report[report["metric"]]
    said = (
        f"made {a.out}: held-out {report['metric']} {reached:.3f} "
        f"[{report['low']:.3f}, {report['high']:.3f}] sampled, {report['greedy']:.3f} greedy, "
        f"after {report['steps']} steps, {report['seconds']:.0f} s"
    )
    short = [
        f"the requested accuracy was {a.accuracy:g}; raise --steps or --lr, or use --like tiny, "
        "which is larger"
    ] * (reached < a.accuracy)
    hint = f"\nnext:  rlzoo run recipe=grpo model.path={out} {words} actor.lr=5e-4"
    document = {"path": a.out, **report}
    return Result(document, lambda _: [folded(said), hint], status=len(short), notes=short)


def _check_demonstrates(name: str, zoo: Zoo, bases: Iterable[str]) -> None:
    presets = list_configs("task")
    if name in presets:
        name = read_spec(find_config("task", name))["task"]["name"]  # type: ignore[arg-type]
    task = zoo.tasks.get(name)
    if task is None:
        known = [*bases, *zoo.tasks, *presets]
        raise RlzooError(
            f"there is no base or task {name!r}{nearest(name, known)} (bases: {', '.join(bases)}; "
            f"tasks: {', '.join(zoo.tasks)})"
        )
    if abilities(task.function).demonstrate is None:
        raise RlzooError(
            f"base: task {name!r} has no demonstrations; give it a method demonstrate(example, "
            "generator) -> (right, wrong), or train on pairs in a file with rlzoo model sft "
            "pairs.jsonl --model nano"
        )
