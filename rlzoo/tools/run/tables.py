"""Tables of runs. No torch here."""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from rlzoo.errors import RunError
from rlzoo.runs.folder import list_runs
from rlzoo.runs.metrics import REWARD
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
    table = Table(
        title=f"{summary['task']}: held-out {summary['eval_metric']}, "
        f"{summary['eval_samples']} samples{_of_prompts(summary)}, 95 % interval",
        title_justify="left",
        box=None if width < 100 else box.HEAVY_HEAD,  # room for columns, not for lines
        padding=(0, 2, 0, 0) if width < 100 else (0, 1),
    )
    columns: dict[str, Callable[[Any, dict[str, Any]], str]] = {
        "run": lambda run, values: run.path.name,
        "estimator": lambda run, values: values["estimator"],
        "seed": lambda run, values: str(values["seed"]),
        "before": lambda run, values: f"{values['eval_before']:.3f}",
        "after": lambda run, values: f"{values['eval_after']:.3f}",
        "interval": lambda run, values: "{:.3f}-{:.3f}".format(*values["eval_after_interval"]),
        "greedy": lambda run, values: _greedy(values),
    }
    if width >= 100:
        columns["reward"] = lambda run, values: sparkline(_rewards(run), 12)
        columns["tokens"] = lambda run, values: f"{values['tokens']:,}"
    if width < 70:
        del columns["interval"]
    columns["s"] = lambda run, values: f"{values['seconds']:.0f}"
    for name in columns:
        text = name in ("run", "estimator", "reward")
        table.add_column(
            name, justify="left" if text else "right", overflow="fold", no_wrap=name != "run"
        )
    same = ("task", "model", "eval_metric", "eval_samples")
    rows: list[list[str]] = []
    for run in reversed(list_runs(folder.path.parent)):
        if len(rows) == most:
            break
        # A neighbour's files may be damaged: that is no affair of this run.
        with contextlib.suppress(RunError, KeyError, TypeError, ValueError, AttributeError):
            values = run.summary()
            if run.path != folder.path and all(values.get(k) == summary[k] for k in same):
                rows.append([cell(run, values) for cell in columns.values()])
    for cells in reversed(rows):
        table.add_row(*map(Text, cells))
    table.add_row(*(Text(cell(folder, summary)) for cell in columns.values()), style="bold")
    return table


def _greedy(values: dict[str, Any]) -> str:
    """Greedy accuracy before and after; older runs did not measure it."""
    before, after = (values.get(f"eval_greedy_{when}") for when in ("before", "after"))
    return "-" if before is None or after is None else f"{before:.3f} > {after:.3f}"


def _rewards(run: Any) -> list[float]:
    return [line[REWARD] for line in run.lines("metrics.jsonl") if REWARD in line]


def _of_prompts(summary: dict[str, Any]) -> str:
    """How many prompts the samples are of, where some came again."""
    different = summary.get("eval_prompts") or summary["eval_samples"]
    return f" of {different} prompts" if different < summary["eval_samples"] else ""


def samples_table(folder: Any, most: int = 4) -> Table:
    """The last samples of a run."""
    table = Table(title="last samples", title_justify="left")
    texts = ("prompt", "response", "answer")
    for name in texts:
        table.add_column(name, overflow="fold")
    table.add_column("score", justify="right")
    for sample in deque(folder.lines("samples.jsonl"), most):
        table.add_row(*(Text(str(sample[k])) for k in texts), f"{sample['score']:.2f}")
    return table
