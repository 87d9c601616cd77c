"""`rlzoo show`: the resolved recipe, where each value came from, and the memory it will take."""

import argparse
import warnings
from functools import partial
from typing import Any

from rlzoo.cli.verb import WORDS_HELP, Result
from rlzoo.errors import NotCached, RecipeError

GUESS = 512  # tokens of a prompt of data that is not here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    parser.add_argument("--changed", action="store_true", help="only what is not a default")


def run(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf

    from rlzoo.cli.catalog.memory import estimate
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
    memory = estimate(plan)
    chat = _chat(plan)

    def view(console: Any) -> list[Any]:
        from rlzoo.cli.catalog.tables import memory_view, recipe_view

        return [
            *recipe_view(recipe, values, plan, console.width),
            *([chat] if chat else []),
            *memory_view(memory, console.width),
        ]

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
        "prompts": chat,
        "memory": memory.document() if memory else None,
    }
    return Result(document, view)


def plan_without_data(recipe: Any, zoo: Any) -> tuple[Any, list[str]]:
    """The plan, and a line where a hub's data is not here and a stand-in takes its place."""
    from rlzoo.recipe.plan import make_plan

    try:
        return make_plan(recipe, zoo), []
    except RecipeError as error:
        if not isinstance(error.__context__, NotCached):
            raise
        task: Any = _Absent(recipe.config.task.get("max_prompt") or GUESS)
        return make_plan(recipe, zoo, task), [f"{error}; prompts are taken as {task}"]


class _Absent:
    """In the place of a task whose data is not here: prompts of so many tokens, no answer."""

    def __init__(self, tokens: int):
        self.tokens = tokens

    def __str__(self) -> str:
        return f"{self.tokens} tokens"

    def draw(self, split: str, n: int, generator: Any) -> list[tuple[str]]:
        return [("abc" * self.tokens,)] * n  # as the estimate of memory counts them

    def score(self, responses: Any, answers: Any, terminated: Any) -> Any:
        raise NotImplementedError


def _chat(plan: Any) -> str | None:
    """How prompts are read, in a line; None where no chat template is known of."""
    from rlzoo.cli.catalog.memory import config_file
    from rlzoo.lm.prompts import drawn, how_read

    model = plan.recipe.config.model
    file = config_file(str(model.path)) if model.path else None
    names = ("chat_template.jinja", "tokenizer_config.json")
    found = [file.parent / name for name in names] if file else []
    known = any(p.is_file() and (p.suffix == ".jinja" or "chat_template" in p.read_text("utf-8"))
                for p in found)  # fmt: skip
    if not (known or model.chat == "always"):
        return None
    return how_read(model.chat, drawn(plan.task, plan.task_name, "train"))


def _is_default(origin: str) -> bool:
    return origin.endswith(("defaults.yaml", "default", "defaults"))
