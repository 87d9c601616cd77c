"""`rlzoo show`: the resolved recipe, the origin of each value, and a preview of the run; or the
recipe for another trainer; `rlzoo show correction`: rollout corrections in all trainers' words."""

import argparse
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rlzoo.cli.verb import WORDS_HELP, Result
from rlzoo.errors import NotCached, RecipeError, warn
from rlzoo.plugin.columns import RESOURCES
from rlzoo_lab.view.blocks import Block, Column, Table, Text
from rlzoo_lab.view.texts import Shown

if TYPE_CHECKING:  # omegaconf, pluggy
    from rlzoo.plugin.registry import Zoo
    from rlzoo.recipe.compose import Recipe
    from rlzoo.recipe.plan import Plan


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
    from rlzoo.plugin.registry import load_zoo

    if arguments.trainer or arguments.words == ["correction"]:
        bridges = entry_points(group="rlzoo.trainers")["bridges"].load()
        zoo = load_zoo() if arguments.trainer else None  # corrections are a list of words
        found: Result = bridges(arguments.trainer or "correction", arguments.words, zoo)
        return found
    from omegaconf import OmegaConf  # from here on torch is needed, two seconds

    from rlzoo.plugin.sketch import load_zoo_after
    from rlzoo.recipe.compose import compose
    from rlzoo.runs.folder import is_run
    from rlzoo_lab.api.preview import blocks, estimate, prompts_read

    words = [f"recipe={w}/recipe.yaml" if is_run(w) else w for w in arguments.words]
    zoo = load_zoo_after(partial(compose, words))
    recipe = compose(words, zoo)
    plan, missing = plan_without_data(recipe, zoo)
    for text in [*missing, *plan.warnings]:
        warn(text)
    values = {key: recipe.value(key) for key in sorted(recipe.origins)}
    values |= recipe.written  # not what environment variables hold
    if arguments.changed:
        values = {k: v for k, v in values.items() if not _is_default(recipe.origins[k])}
    prompts, memory = prompts_read(plan), estimate(plan)

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
        "prompts": prompts,
        "memory": memory,
    }
    unknown = "memory: unknown, because there is neither a config.json nor a model.shape"
    shown = Shown([
        *_settings(recipe, values, plan),
        *([Text(prompts)] if prompts else []),
        *(blocks(memory) if memory else [Text(unknown)]),
    ])  # fmt: skip
    return Result(document, shown)


def _settings(recipe: "Recipe", values: dict[str, Any], plan: "Plan") -> list[Block]:
    """Values of a recipe with their origins, and what the run builds."""
    origins = [recipe.origins[key] for key in values]
    texts = ["null" if v is None else str(v).replace("\n", "\\n") for v in values.values()]
    columns = [
        Column("key", list(values)),
        Column("value", texts, left=True),
        Column("from", [o.removesuffix(".yaml") for o in origins], left=True),
    ]
    faint = [i for i, origin in enumerate(origins) if origin.endswith("defaults.yaml")]
    built = {"critic": plan.critic, "reference": plan.reference, "teacher": plan.teacher}
    models = ", ".join(["actor", *(name for name, there in built.items() if there)])
    used = ", ".join(sorted(n for n in plan.needs if n not in RESOURCES))
    table = Table(columns, f"recipe {recipe.name}", faint=faint)
    return [table, Text(f"models: {models}"), Text(f"columns used: {used}")]


def plan_without_data(recipe: "Recipe", zoo: "Zoo") -> tuple["Plan", list[str]]:
    """The plan, and a note if data of a hub is missing and replaced by a stand-in."""
    from rlzoo.recipe.plan import make_plan

    try:
        return make_plan(recipe, zoo), []
    except RecipeError as error:
        if not isinstance(error.__context__, NotCached):
            raise
        absent: Any = _Absent()
        return make_plan(recipe, zoo, absent), [f"{error}; its prompts are not examined"]


class _Absent:
    """Stands in for a task whose data is missing."""

    def draw(self, split: str, n: int, generator: object) -> list[tuple[str]]:
        return [("?",)] * n

    def score(self, responses: object, answers: object, terminated: object) -> object:
        raise NotImplementedError


def _is_default(origin: str) -> bool:
    return origin.endswith(("defaults.yaml", "default", "defaults"))
