"""`rlzoo show`: the resolved recipe, where each value came from, and the memory it will take."""

import argparse
import warnings
from functools import partial
from typing import Any

from rlzoo.cli.verb import WORDS_HELP, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    parser.add_argument("--changed", action="store_true", help="only what is not a default")


def run(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf

    from rlzoo.cli.catalog.memory import estimate
    from rlzoo.plugin.sketch import load_zoo_after
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan

    zoo = load_zoo_after(partial(compose, arguments.words))
    recipe = compose(arguments.words, zoo)
    plan = make_plan(recipe, zoo)
    for text in plan.warnings:
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
