"""Tables of runs. No torch here."""

from typing import Any

from rich.table import Table
from rich.text import Text

from rlzoo.show.curve import sparkline


def closing_tables(summary: dict[str, Any], folder: Any, width: int) -> list[Any]:
    """Before and after, a few samples, and this run beside earlier ones of its task."""
    return [
        beside_earlier(summary, folder, width),
        samples_table(folder),
        Text(f"run folder: {folder.path}", overflow="fold"),
    ]


def beside_earlier(summary: dict[str, Any], folder: Any, width: int, most: int = 8) -> Table:
    """This run and earlier ones of the same task and model in the folder beside it."""
    from rlzoo.runs.folder import list_runs

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
