"""What there is, as tables: components, recipes, a recipe's values, its memory."""

from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlzoo.plugin.columns import RESOURCES


def plugins_view(zoo: Any, width: int) -> list[Any]:
    """Every component with its needs, options and defaults, source and origin: a table for each
    kind, or a paragraph for each component where the terminal is narrow."""
    out: list[Any] = []
    for kind, shelf in zoo.shelves.items():
        if not shelf:
            continue
        title = f"{kind.replace('_', ' ')} ({len(shelf)})"
        rows = [
            (
                name,
                " ".join(c.needs),
                " ".join(f"{o.name}={o.default!r}" for o in c.options.values()),
                c.source,
                c.origin,
            )
            for name, c in shelf.items()
        ]
        words = ("name", "needs", "options", "source", "origin")
        if width < 130:
            out.append(Text(f"\n{title}", style="bold"))
            for name, *rest in rows:
                out.append(Text(f"  {name}", style="bold green"))
                lines = zip(words[1:], rest, strict=True)
                out += [
                    Padding(Text.assemble((f"{word} ", "dim"), text), (0, 0, 0, 4))
                    for word, text in lines
                    if text
                ]
            continue
        table = Table(title=title, title_justify="left", expand=True)
        for word, ratio in zip(words, (3, 5, 4, 5, 5), strict=True):
            style = "bold green" if word == "name" else ""
            table.add_column(word, overflow="fold", ratio=ratio, style=style)
        for row in rows:
            table.add_row(*map(Text, row))
        out.append(table)
    out.append(Text(f"\n{sum(len(s) for s in zoo.shelves.values())} components"))
    return out


def recipe_view(recipe: Any, values: dict[str, Any], plan: Any) -> list[Any]:
    """Every value of a recipe with its origin, and what it makes the run build."""
    table = Table(title=f"recipe {recipe.name}", title_justify="left")
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold")
    for key, value in values.items():
        origin = recipe.origins[key]
        style = "dim" if origin.endswith("defaults.yaml") else ""
        table.add_row(key, Text("null" if value is None else str(value)), origin, style=style)
    built = {"critic": plan.critic, "reference": plan.reference, "teacher": plan.teacher}
    models = ", ".join(["actor", *(name for name, there in built.items() if there)])
    columns = ", ".join(sorted(n for n in plan.needs if n not in RESOURCES))
    return [table, Text(f"models: {models}"), Text(f"columns asked for: {columns}")]


def memory_view(found: Any) -> list[Any]:
    """An estimate of a run's memory, item by item; None where the model's sizes are unknown."""
    if found is None:
        return [Text("memory: the model's sizes are not known here (no config.json, no shape)")]
    from rlzoo.show.numbers import show_bytes

    exact = "" if found.sizes.exact else "about "
    table = Table(
        title=f"memory on {found.device}, estimated: {show_bytes(found.peak)} at the most",
        title_justify="left",
    )
    for name in ("what", "bytes", "when", "how"):
        table.add_column(name, overflow="fold", justify="right" if name == "bytes" else "left")
    for item in found.items:
        table.add_row(item.what, show_bytes(item.bytes), item.when, item.how)
    beside = "Python and its libraries" if found.device == "cpu" else "the CUDA context"
    text = (
        f"{exact}{found.sizes.parameters:,} parameters, by {found.source}; prompts of up to "
        f"{found.prompt} tokens; {beside} not counted"
    )
    return [table, Text(text)]


def recipes_table(recipes: dict[str, Path], describe: Any, show_path: Any) -> Table:
    table = Table(title=f"{len(recipes)} recipes", title_justify="left")
    table.add_column("recipe", style="bold", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("file", overflow="fold")
    for name, path in recipes.items():
        table.add_row(name, describe(path), show_path(path))
    return table
