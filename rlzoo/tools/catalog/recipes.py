"""`rlzoo recipes`: the recipes, each with its source."""

import argparse
from typing import Any

from rlzoo.recipe.files import describe, list_configs, show_path
from rlzoo.tools.verb import Result


def add_arguments(parser: argparse.ArgumentParser) -> None: ...


def run(arguments: argparse.Namespace) -> Result:
    recipes = list_configs("recipes")

    def view(_: Any) -> list[Any]:
        from rlzoo.tools.catalog.tables import recipes_table

        return [recipes_table(recipes, describe, show_path)]

    document = [{"name": n, "what": describe(p), "file": str(p)} for n, p in recipes.items()]
    return Result(document, view)
