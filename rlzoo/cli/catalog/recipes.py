"""`rlzoo recipes [WORD]`: lists the recipes and their sources."""

import argparse
import os
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, nearest
from rlzoo.recipe.files import describe, list_configs, show_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("looked_for", nargs="*", metavar="WORD", help="words to search for")


def run(arguments: argparse.Namespace) -> Result:
    every, words = list_configs("recipes"), [word.lower() for word in arguments.looked_for]
    recipes = {
        name: path
        for name, path in every.items()
        if all(word in f"{name} {path.read_text(encoding='utf-8')}".lower() for word in words)
    }
    if not recipes:
        raise UsageError(f"no recipe mentions {' '.join(words)!r}{nearest(' '.join(words), every)}")

    def view(console: Any) -> list[Any]:
        from rlzoo.cli.catalog.tables import recipes_view

        if not console.is_terminal and "COLUMNS" not in os.environ:  # a pipe has no width
            longest = max(map(len, recipes))
            return [f"{name:{longest}}  {describe(path)}" for name, path in recipes.items()]
        return recipes_view(recipes, describe, show_path, console.width)

    document = [{"name": n, "what": describe(p), "file": str(p)} for n, p in recipes.items()]
    return Result(document, view)
