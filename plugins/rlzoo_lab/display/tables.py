"""Tables of runs. No torch here."""

import contextlib
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from rlzoo.errors import RlzooError
from rlzoo.runs.disk import is_number, refuse_devices
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import REWARD
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.comparable import labelled, settings, terms
from rlzoo_lab.data.record import Record, flat_config
from rlzoo_lab.view.numbers import sample_texts, sparkline


def closing_tables(summary: dict[str, Any], folder: RunFolder, width: int) -> list[Any]:
    """The run before and after training, comparable earlier runs, and a few samples."""
    mine = _record(folder, summary)
    earlier, others = comparable(mine)
    table = beside_earlier(mine, earlier, width)
    title, table.title = Text(str(table.title), style="italic"), None  # it breaks at its own width
    parts: list[Any] = [title, table, samples_table(folder)]
    if others:
        text = (
            f"Not shown: {others} run{'s' * (others > 1)} in {folder.path.parent} with a "
            "different task, data, model, budget or evaluation."
        )
        parts.insert(2, Text(text, style="dim"))
    return [*parts, Text(f"run folder: {folder.path}", overflow="fold")]


def comparable(mine: Record, most: int = 8) -> tuple[list[Record], int]:
    """Finished runs in the same parent folder that differ only in method or seed, the last
    `most` of them, oldest first; and how many others there are."""
    found: list[Record] = []
    others, wanted = 0, terms(mine)
    finished = mine.path.parent.glob("*/summary.json")
    for summary in sorted(finished, key=lambda p: p.stat().st_mtime, reverse=True):
        run = RunFolder(summary.parent)
        if run.path == mine.path or len(found) == most:
            continue
        # Another run's files may be damaged: this run must not fail for that.
        damage = (
            RlzooError,
            OSError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
        )
        with contextlib.suppress(*damage):
            refuse_devices(run.path)
            record = _record(run, run.summary())
            _ = {key: record.summary[key] for key in SHOWN}, _interval(record)
            if terms(record) == wanted:
                found.append(record)
            else:
                others += 1
    return found[::-1], others


SHOWN = ("eval_before", "eval_after", "eval_after_interval", "seconds", "tokens", "seed")


def _record(run: RunFolder, summary: dict[str, Any]) -> Record:
    """A finished run as far as the table needs it: its lines stay on disk."""
    return Record(Columns(), recipe=flat_config(run.recipe(), summary["recipe"]),
                  summary=summary, path=run.path)  # fmt: skip


def beside_earlier(mine: Record, earlier: Sequence[Record], width: int) -> Table:
    """A row for each run, labeled by the settings in which these runs differ."""
    summary = mine.summary
    table = Table(
        title=f"{summary['task']}: held-out {summary['eval_metric']}, "
        f"{summary['eval_samples']} samples{_of_prompts(summary)}, 95 % interval",
        title_justify="left",
        box=None if width < 100 else box.HEAVY_HEAD,  # room for columns, not for lines
        padding=(0, 1, 0, 0) if width < 70 else (0, 2, 0, 0) if width < 100 else (0, 1),
    )
    records = [*earlier, mine]
    names = [r.path.name for r in records]
    if width < 100 and max(map(len, names)) > 20:  # of a name that was made, the time is enough
        made = (
            f"^({'|'.join({re.escape(r.summary['recipe']) for r in records})})-\\w+-(?=\\d{{8}}-)"
        )
        names = [re.sub(made, "", name) for name in names]
    columns: dict[str, list[str]] = {
        "run": names,
        "what": labels(records),
        "seed": [str(r.seed) for r in records],
        "before": [f"{r.before:.3f}" for r in records],
        "after": [f"{r.score:.3f}" for r in records],
        "interval": [*map(_interval, records)],
        "greedy": [_greedy(r.summary) for r in records],
    }
    if width >= 100:
        columns["reward"] = [sparkline(_rewards(r), 12) for r in records]
        columns["tokens"] = [f"{r.summary['tokens']:,}" for r in records]
    if width < 70:
        del columns["interval"]
    columns["s"] = [f"{r.summary['seconds']:.0f}" for r in records]
    for name in columns:
        text = name in ("run", "what", "reward")
        table.add_column(
            name, justify="left" if text else "right", overflow="fold",
            no_wrap=name != "what" and (name != "run" or max(map(len, names)) <= 20),
        )  # fmt: skip
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, cells), style="bold" if cells[0] == names[-1] else "")
    return table


def labels(records: Sequence[Record]) -> list[str]:
    """`lam=0.9` for each run: the settings in which they differ, except the seed."""
    kinds = {repr(sorted(settings(record).items())): record for record in records}
    rows = labelled(list(kinds.values()), ())
    named = {kind: row.label for kind, row in zip(kinds, rows, strict=True)}
    return [named[repr(sorted(settings(record).items()))] for record in records]


def _interval(record: Record) -> str:
    low, high = record.summary["eval_after_interval"]
    return f"{low:.3f}-{high:.3f}"


def _greedy(values: dict[str, Any]) -> str:
    """Greedy accuracy before and after; older runs did not measure it."""
    before, after = (values.get(f"eval_greedy_{when}") for when in ("before", "after"))
    return "-" if before is None or after is None else f"{before:.3f} > {after:.3f}"


def _rewards(record: Record) -> list[float]:
    lines = RunFolder(record.path).lines("metrics.jsonl")
    return [line[REWARD] for line in lines if REWARD in line]


def _of_prompts(summary: dict[str, Any]) -> str:
    """How many prompts the samples are of, where some came again."""
    different = summary.get("eval_prompts") or summary["eval_samples"]
    return (
        f" of {different} prompt{'s' * (different > 1)}"
        if different < summary["eval_samples"]
        else ""
    )


def samples_table(folder: RunFolder, most: int = 4) -> Table:
    table = Table(title="last samples", title_justify="left")
    samples = deque(folder.lines("samples.jsonl"), most)
    texts = sample_texts(samples)
    for name in texts:
        table.add_column(name, overflow="fold")
    table.add_column("score", justify="right")
    for sample in samples:
        score = sample.get("score")
        shown = f"{score:.2f}" if is_number(score) else "-"
        table.add_row(*(Text(str(sample.get(k, "-"))) for k in texts), shown)
    return table
