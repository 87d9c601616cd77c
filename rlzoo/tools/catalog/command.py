import argparse
import warnings

from rlzoo.plugin.component import KINDS
from rlzoo.tools.verb import Result


def command_plugins(arguments: argparse.Namespace) -> Result:
    from rich.console import Console

    from rlzoo.plugin.registry import load_zoo
    from rlzoo.tools.catalog.tables import plugins_view

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
    from rlzoo.recipe.files import describe, list_configs, show_path

    recipes = list_configs("recipes")
    if arguments.json:
        return 0, [{"name": n, "what": describe(p), "file": str(p)} for n, p in recipes.items()]
    from rich.console import Console

    from rlzoo.tools.catalog.tables import recipes_table

    Console().print(recipes_table(recipes, describe, show_path))
    return 0, None


def command_show(arguments: argparse.Namespace) -> Result:
    from omegaconf import OmegaConf

    from rlzoo.plugin.registry import load_zoo
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan
    from rlzoo.tools.catalog import memory

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

    from rlzoo.tools.catalog.tables import memory_view, recipe_view

    for part in [*recipe_view(recipe, values, plan), *memory_view(memory.estimate(plan))]:
        Console().print(part)
    return 0, None
