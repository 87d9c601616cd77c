"""Tables: components, recipes, a recipe's values."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlzoo.plugin.columns import RESOURCES
from rlzoo.plugin.component import KINDS, Component
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.plan import Plan

Found = Sequence[tuple[str, Component]]  # each with the name that reaches it
Part = Padding | Table | Text
Shown = Callable[[Path], str]


def names_view(found: Found) -> Iterator[Part]:
    """The names of each kind."""
    for kind, some in itertools.groupby(found, lambda pair: pair[1].kind):
        names = [name for name, _ in some]
        yield Text.assemble((kind.replace("_", " "), "bold"), (f" ({len(names)})", "dim"))
        yield Padding(Text("  ".join(names), style="green"), (0, 0, 0, 2))
    yield Text(
        f"{len(found)} components. For a kind with descriptions: rlzoo plugins estimators; for "
        "all details, or to search for a word: rlzoo plugins NAME",
        style="dim",
    )


def ideas_view(found: Found, width: int) -> Iterator[Part]:
    """One line per component: its name and the beginning of its description."""
    for kind, some in itertools.groupby(found, lambda pair: pair[1].kind):
        table = _grid()
        rows = [(name, c.summary) for name, c in some]
        longest = max(len(name) for name, _ in rows)
        longest = min(longest, width // 2)
        table.add_column(style="bold green", no_wrap=True, min_width=longest)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=width - longest - 2)
        for name, summary in rows:
            table.add_row(name, Text(summary))
        yield Text(kind.replace("_", " "), style="bold")
        yield table
    yield Text("for all details of a component: rlzoo plugins NAME", style="dim")


def details_view(found: Found, others: Sequence[str]) -> Iterator[Part]:
    """All details of some components. others: names of components that mention them."""
    for name, c in found:
        kind = KINDS[c.kind]
        many = kind.key == kind.plural
        key = f"{kind.key}=[{name}]" if many else f"{kind.key}={name}"
        yield Text.assemble((f"{kind.singular.replace('_', ' ')} ", "dim"), (name, "bold green"))
        yield Padding(Text(_reflowed(c.doc)), (0, 0, 0, 2))
        table = _grid()
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("choose", Text(key))
        place = f"{kind.key}.{name}" if many else kind.key
        for option in c.options.values():
            default = f"{place}.{option.name}={option.default!r}"
            table.add_row("option", Text(f"{default}  {option.type_text}"))
        table.add_row("needs", Text(" ".join(c.needs) or "nothing"))
        table.add_row("file", Text(c.file))
        table.add_row("from", Text(c.origin))
        yield Padding(table, (0, 0, 1, 2))
    if others:
        yield Text(f"also mentioned by: {' '.join(dict.fromkeys(others))}", style="dim")


def _reflowed(doc: str) -> str:
    """Paragraphs as lines; indented text stays as it is."""
    parts = doc.split("\n\n")
    return "\n\n".join(p if "\n " in p else p.replace("\n", " ") for p in parts)


def _grid(between: int = 2) -> Table:
    return Table.grid(padding=(0, between, 0, 0), pad_edge=False)


def recipe_view(recipe: Recipe, values: dict[str, Any], plan: Plan, width: int) -> list[Part]:
    """Values of a recipe with their origins, and what the run builds."""
    narrow = width < 100
    table = _grid(1 if width < 70 else 2) if narrow else Table()
    table.title, table.title_justify, table.show_header = f"recipe {recipe.name}", "left", True
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold", no_wrap=narrow and name == "key")
    for key, value in values.items():
        origin = recipe.origins[key]
        style = "dim" if origin.endswith("defaults.yaml") else ""
        short = origin.removeprefix("shipped ").removesuffix(".yaml") if narrow else origin
        told = "null" if value is None else str(value).replace("\n", "\\n")
        table.add_row(key, Text(told), short, style=style)
    built = {"critic": plan.critic, "reference": plan.reference, "teacher": plan.teacher}
    models = ", ".join(["actor", *(name for name, there in built.items() if there)])
    columns = ", ".join(sorted(n for n in plan.needs if n not in RESOURCES))
    return [table, Text(f"models: {models}"), Text(f"columns used: {columns}")]


ROOM_FOR_ALL = 4
ONE_LINE_EACH = 10  # more recipes than that are a line each


def recipes_view(
    recipes: Mapping[str, Path], describe: Shown, show_path: Shown, width: int
) -> list[Part]:
    """A line for each recipe; sources where there is room, or few; files of a user's own."""
    few = len(recipes) <= ROOM_FOR_ALL
    table = _grid()
    brief = len(recipes) > ONE_LINE_EACH
    longest = min(22, max(map(len, recipes)))
    table.add_column(style="bold green", no_wrap=True, min_width=longest)
    table.add_column(
        no_wrap=brief, overflow="ellipsis" if brief else "fold", max_width=width - longest - 2
    )
    for name, path in recipes.items():
        what, colon, source = describe(path).partition(": ")
        file = show_path(path)
        beside = [f"({file})"] if few or not file.startswith("shipped ") else []
        told = f"{what}{colon}{source}" if few or width >= 130 else what
        table.add_row(name, Text(" ".join([told, *beside])))
    foot = (
        "To see what a recipe sets: rlzoo show NAME"
        if few
        else f"{len(recipes)} recipes. Sources: rlzoo recipes NAME; settings: rlzoo show NAME"
    )
    return [table, Text(foot, style="dim")]
