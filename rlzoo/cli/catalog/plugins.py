"""`rlzoo plugins [KIND] [WORD]`: lists components: names, summaries, or all details."""

import argparse
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, nearest
from rlzoo.plugin.component import KINDS, Component

if TYPE_CHECKING:  # rich, pluggy
    from rich.console import Console

    from rlzoo.plugin.registry import Zoo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "looked_for",
        nargs="*",
        metavar="KIND|WORD",
        help=f"a kind ({', '.join(KINDS)}), a name, or words to search for",
    )


def run(arguments: argparse.Namespace) -> Result:
    from rlzoo.plugin.registry import load_zoo
    from rlzoo.plugin.sketch import sketch

    kind, words = _kind(arguments.looked_for)
    zoo = None if words or arguments.json else sketch(own=True)  # a list needs no torch
    if zoo is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the broken ones are listed below
            zoo = load_zoo()
    found = find(zoo, kind, words)
    components = [
        {
            "kind": KINDS[c.kind].singular,
            "name": name,
            "summary": c.summary,
            "needs": list(c.needs),
            "options": {
                o.name: {"type": o.type_text, "default": o.default} for o in c.options.values()
            },
            "source": c.source,
            "origin": c.origin,
            "file": c.file,
        }
        for name, c in found
    ]

    def view(console: "Console") -> Iterator[Any]:
        from rlzoo.cli.catalog.tables import details_view, ideas_view, names_view

        exact = [(name, c) for name, c in found if name in words]
        if not kind and not words:
            yield from names_view(found)
        elif exact:
            yield from details_view(exact, [name for name, _ in found if (name, _) not in exact])
        else:
            yield from ideas_view(found, console.width)
        yield from [*map(str, zoo.broken), *zoo.notes]

    broken = [{"origin": b.origin, "reason": b.reason} for b in zoo.broken]
    return Result({"components": components, "broken": broken, "notes": zoo.notes}, view)


def _kind(words: list[str]) -> tuple[str, list[str]]:
    """The kind that a first word names, in any of its forms, or none; and the other words."""
    forms = {form: k.plural for k in KINDS.values() for form in (k.plural, k.singular, k.key)}
    first = words[0].lower().replace("-", "_") if words else ""
    return (forms[first], words[1:]) if first in forms else ("", words)


def find(zoo: "Zoo", kind: str, words: list[str]) -> list[tuple[str, Component]]:
    """(name, component) of a kind, or of all, that contain every word; raises UsageError if none
    does."""
    shelves = [zoo.shelves[kind]] if kind else list(zoo.shelves.values())
    every = [(name, c) for shelf in shelves for name, c in shelf.items()]

    def speaks(name: str, c: Component) -> bool:
        text = " ".join([name, *c.needs, *c.options, c.doc, c.origin]).lower()
        return all(word.lower() in text for word in words)

    found = [(name, c) for name, c in every if speaks(name, c)]
    if words and not found:
        names = [name for name, _ in every] + ([] if kind else list(KINDS))
        what = kind.replace("_", " ") if kind else "plugins"
        raise UsageError(f"none of the {what} mention {' '.join(words)!r}"
                         f"{nearest(words[-1], names)}")  # fmt: skip
    return found
