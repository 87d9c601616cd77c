"""`rlzoo show`: the resolved recipe, the origin of each value, and a preview of the run; or the
recipe for another trainer."""

import argparse
import warnings
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rlzoo.cli.verb import WORDS_HELP, Result
from rlzoo.errors import NotCached, RecipeError
from rlzoo.plugin.columns import RESOURCES

if TYPE_CHECKING:  # omegaconf, pluggy, rich
    from rich.console import RenderableType

    from rlzoo.plugin.registry import Zoo
    from rlzoo.recipe.compose import Recipe
    from rlzoo.recipe.plan import Plan

GUESS = 512  # tokens of a prompt of data that is not here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--changed", action="store_true", help="show only non-default values")
    one.add_argument(
        "--for",
        dest="trainer",
        metavar="TRAINER",
        help="the lines that start the recipe in verl, skyrl, slime, trl, prime-rl or rllm; "
        "without a recipe: the components that it supports",
    )


def run(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf

    from rlzoo.plugin.registry import load_zoo
    from rlzoo.plugin.sketch import load_zoo_after
    from rlzoo.recipe.compose import compose
    from rlzoo.runs.folder import is_run
    from rlzoo_lab.preview import preview

    if arguments.trainer:
        bridges = entry_points(group="rlzoo.trainers")["bridges"].load()
        found: Result = bridges(arguments.trainer, arguments.words, load_zoo())
        return found
    words = [f"recipe={w}/recipe.yaml" if is_run(w) else w for w in arguments.words]
    zoo = load_zoo_after(partial(compose, words))
    recipe = compose(words, zoo)
    plan, missing = plan_without_data(recipe, zoo)
    for text in [*missing, *plan.warnings]:
        warnings.warn(text, stacklevel=1)
    values = {key: recipe.value(key) for key in sorted(recipe.origins)}
    values |= recipe.written  # not what environment variables hold
    if arguments.changed:
        values = {k: v for k, v in values.items() if not _is_default(recipe.origins[k])}
    about = preview(plan)

    def view(console: Any) -> list[Any]:
        return [*_settings(recipe, values, plan, console.width), *about.view(console.width)]

    document = {
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
        "teacher": plan.teacher,
    }
    return Result(document | about.document(), view)


def _settings(
    recipe: "Recipe", values: dict[str, Any], plan: "Plan", width: int
) -> list["RenderableType"]:
    """Values of a recipe with their origins, and what the run builds."""
    from rich.table import Table
    from rich.text import Text

    narrow = width < 100
    between = 1 if width < 70 else 2
    table = Table.grid(padding=(0, between, 0, 0), pad_edge=False) if narrow else Table()
    table.title, table.title_justify, table.show_header = f"recipe {recipe.name}", "left", True
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold", no_wrap=narrow and name == "key")
    for key, value in values.items():
        origin = recipe.origins[key]
        style = "dim" if origin.endswith("defaults.yaml") else ""
        short = origin.removeprefix("shipped ").removesuffix(".yaml") if narrow else origin
        text = "null" if value is None else str(value).replace("\n", "\\n")
        table.add_row(key, Text(text), short, style=style)
    built = {"critic": plan.critic, "reference": plan.reference, "teacher": plan.teacher}
    models = ", ".join(["actor", *(name for name, there in built.items() if there)])
    columns = ", ".join(sorted(n for n in plan.needs if n not in RESOURCES))
    return [table, Text(f"models: {models}"), Text(f"columns used: {columns}")]


def plan_without_data(recipe: "Recipe", zoo: "Zoo") -> tuple["Plan", list[str]]:
    """The plan, and a note if data of a hub is missing and replaced by a stand-in."""
    from rlzoo.recipe.plan import make_plan

    try:
        return make_plan(recipe, zoo), []
    except RecipeError as error:
        if not isinstance(error.__context__, NotCached):
            raise
        task: Any = _Absent(recipe.value("task").get("max_prompt") or GUESS)
        return make_plan(recipe, zoo, task), [f"{error}; prompts are assumed to have {task}"]


class _Absent:
    """Stands in for a task whose data is missing: prompts of `tokens` tokens, no answer."""

    def __init__(self, tokens: int):
        self.tokens = tokens

    def __str__(self) -> str:
        return f"{self.tokens} tokens"

    def draw(self, split: str, n: int, generator: object) -> list[tuple[str]]:
        return [("abc" * self.tokens,)] * n  # as the estimate of memory counts them

    def score(self, responses: object, answers: object, terminated: object) -> object:
        raise NotImplementedError


def _is_default(origin: str) -> bool:
    return origin.endswith(("defaults.yaml", "default", "defaults"))
