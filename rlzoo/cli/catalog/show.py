"""`rlzoo show`: the resolved recipe, the origin of each value, and the lab's preview of a run."""

import argparse
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from rlzoo.cli.verb import WORDS_HELP, Result
from rlzoo.errors import NotCached, RecipeError
from rlzoo.plugin.installed import face, names

if TYPE_CHECKING:  # omegaconf, pluggy
    from rlzoo.plugin.registry import Zoo
    from rlzoo.recipe.compose import Recipe
    from rlzoo.recipe.plan import Plan

GUESS = 512  # tokens of a prompt of data that is not here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    parser.add_argument("--changed", action="store_true", help="show only non-default values")


def run(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf

    from rlzoo.plugin.sketch import load_zoo_after
    from rlzoo.recipe.compose import compose

    zoo = load_zoo_after(partial(compose, arguments.words))
    recipe = compose(arguments.words, zoo)
    plan, missing = plan_without_data(recipe, zoo)
    for text in [*missing, *plan.warnings]:
        warnings.warn(text, stacklevel=1)
    values = {key: recipe.value(key) for key in sorted(recipe.origins)}
    values |= recipe.written  # not what environment variables hold
    if arguments.changed:
        values = {k: v for k, v in values.items() if not _is_default(recipe.origins[k])}
    more = face("preview", "preview")(plan) if "preview" in names() else None

    def view(console: Any) -> list[Any]:
        from rlzoo.cli.catalog.tables import recipe_view

        shown = recipe_view(recipe, values, plan, console.width)
        return [*shown, *(more.view(console.width) if more else ())]

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
    return Result(document | (more.document() if more else {}), view)


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
