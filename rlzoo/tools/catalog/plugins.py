"""`rlzoo plugins`: what there is: needs, options, source, origin, broken ones."""

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

from rlzoo.plugin.component import KINDS
from rlzoo.tools.verb import Result


def add_arguments(parser: argparse.ArgumentParser) -> None: ...


def run(arguments: argparse.Namespace) -> Result:
    from rlzoo.plugin.registry import load_zoo

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the broken ones are listed below
        zoo = load_zoo()
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
        for shelf in zoo.shelves.values()
        for name, c in shelf.items()
    ]

    def view(console: Any) -> Iterator[Any]:
        from rlzoo.tools.catalog.tables import plugins_view

        yield from plugins_view(zoo, console.width)
        yield from [*map(str, zoo.broken), *zoo.notes]

    broken = [{"origin": b.origin, "reason": b.reason} for b in zoo.broken]
    return Result({"components": components, "broken": broken, "notes": zoo.notes}, view)
