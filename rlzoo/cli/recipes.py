"""`rlzoo recipes [WORD]`: lists the recipes and their sources."""

import argparse
from collections.abc import Iterator
from typing import Any

from rlzoo.cli import guide
from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, nearest
from rlzoo.recipe.files import describe, list_configs, show_path

FEW = 10  # recipes that are shown whole, each with its file


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

    def view(_: Any) -> Iterator[str]:
        few = len(recipes) <= FEW
        lines = [
            (name, f"{describe(path)} ({show_path(path)})" if few else describe(path))
            for name, path in recipes.items()
        ]
        yield guide.columns(lines, one_line=not few)
        foot = "`rlzoo show NAME` prints what a recipe sets."
        more = f"{len(recipes)} recipes. `rlzoo recipes NAME` prints a recipe's source. "
        yield guide.fold(foot if few else more + foot)

    document = [{"name": n, "what": describe(p), "file": str(p)} for n, p in recipes.items()]
    return Result(document, view)
