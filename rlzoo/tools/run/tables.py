"""Tables of runs. No torch here."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlzoo.columns import RESOURCES
from rlzoo.component import KINDS

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Iterable[float], width: int = 20) -> str:
    """A curve in block characters, at most `width` wide; a longer one is averaged down."""
    data = [v for v in values if v == v]
    if not data:
        return ""
    if len(data) > width:
        edges = [round(i * len(data) / width) for i in range(width + 1)]
        pairs = itertools.pairwise(edges)
        data = [sum(data[a:b]) / (b - a) for a, b in pairs]
    low, high = min(data), max(data)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0
    return "".join(BARS[round((v - low) * scale)] for v in data)


def percent(value: float, low: float, high: float) -> str:
    """`0.812 [0.787, 0.835]`"""
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def closing_tables(summary: dict[str, Any], folder: Any, width: int) -> list[Any]:
    """Before and after, a few samples, and this run beside earlier ones of its task."""
    return [
        beside_earlier(summary, folder, width),
        samples_table(folder),
        Text(f"run folder: {folder.path}", overflow="fold"),
    ]


def beside_earlier(summary: dict[str, Any], folder: Any, width: int, most: int = 8) -> Table:
    """This run and earlier ones of the same task and model in the folder beside it."""
    from rlzoo.runs import list_runs

    table = Table(
        title=f"{summary['task']}: held-out {summary['eval_metric']}, "
        f"{summary['eval_samples']} samples, 95 % interval",
        title_justify="left",
    )
    wide = width >= 100
    table.add_column("run", overflow="fold")
    table.add_column("estimator", overflow="fold")
    for name in ("seed", "before", "after", "interval"):
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("reward", no_wrap=True)
        table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    same = ("task", "model", "eval_metric", "eval_samples")
    others = [
        (run, other)
        for run in list_runs(folder.path.parent)
        if run.path != folder.path
        and all((other := run.summary()).get(k) == summary[k] for k in same)
    ][-most:]
    for run, values in [*others, (folder, summary)]:
        low, high = values["eval_after_interval"]
        cells = [
            run.path.name,
            values["estimator"],
            str(values["seed"]),
            f"{values['eval_before']:.3f}",
            f"{values['eval_after']:.3f}",
            f"{low:.3f}-{high:.3f}",
        ]
        if wide:
            curve = [r["reward/mean"] for r in run.read("metrics.jsonl") if "reward/mean" in r]
            cells += [sparkline(curve, 12), f"{values['tokens']:,}"]
        cells.append(f"{values['seconds']:.0f}")
        table.add_row(*cells, style="bold" if run is folder else "")
    return table


def samples_table(folder: Any, most: int = 4) -> Table:
    """The last samples of a run."""
    table = Table(title="last samples", title_justify="left")
    for name in ("prompt", "response", "answer"):
        table.add_column(name, overflow="fold")
    table.add_column("score", justify="right")
    for s in folder.read("samples.jsonl")[-most:]:
        table.add_row(
            *(Text(str(s[k])) for k in ("prompt", "response", "answer")), f"{s['score']:.2f}"
        )
    return table


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
                c.name,
                " ".join(c.needs),
                " ".join(f"{o.name}={o.default!r}" for o in c.options.values()),
                c.source,
                c.origin,
            )
            for c in shelf.values()
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


def checks_table(results: dict[Any, list[Any]], *, brief: bool) -> list[Any]:
    """A row per check of each component; `brief`: a row per component and its faults."""
    words = {True: "passed", False: "FAILED", None: "n/a"}
    styles = {True: "green", False: "bold red", None: "dim"}
    table = Table(title="conformance", title_justify="left")
    columns = ("component", "passed", "n/a", "failed") if brief else ("check", "", "what")
    for name in columns:
        table.add_column(name, overflow="fold")
    faults: list[Any] = []
    for component, checked in results.items():
        label = f"{KINDS[component.kind].singular} {component.name}"
        if brief:
            counts = [sum(r.passed is p for r in checked) for p in (True, None, False)]
            table.add_row(label, *map(str, counts), style="bold red" if counts[2] else "")
            faults += [
                Text(f"{label}: {r.name}: {r.message}", style="red")
                for r in checked
                if r.passed is False
            ]
        else:
            table.add_section()
            table.add_row(Text(label, style="bold"), "", component.file)
            for r in checked:
                table.add_row(r.name, Text(words[r.passed], style=styles[r.passed]), r.message)
    return [table, *faults]


def recipe_view(recipe: Any, values: dict[str, Any], plan: Any) -> list[Any]:
    """Every value of a recipe with its origin, and what it makes the run build."""
    table = Table(title=f"recipe {recipe.name}", title_justify="left")
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold")
    for key, value in values.items():
        origin = recipe.origins[key]
        style = "dim" if origin.endswith("defaults.yaml") else ""
        table.add_row(key, Text("null" if value is None else str(value)), origin, style=style)
    built = {"critic": plan.critic, "reference": plan.reference}
    models = ", ".join(["actor", *(name for name, there in built.items() if there)])
    columns = ", ".join(sorted(n for n in plan.needs if n not in RESOURCES))
    return [table, Text(f"models: {models}"), Text(f"columns asked for: {columns}")]


def memory_view(found: Any) -> list[Any]:
    """An estimate of a run's memory, item by item; None where the model's sizes are unknown."""
    if found is None:
        return [Text("memory: the model's sizes are not known here (no config.json, no shape)")]
    from rlzoo.memory import show_bytes

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
