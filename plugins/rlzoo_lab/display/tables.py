"""Tables of runs. No torch here."""

import contextlib
import shlex
from collections import deque
from collections.abc import Sequence
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.runs.disk import refuse_devices
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import REWARD
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.comparable import labelled, settings, terms
from rlzoo_lab.data.record import Record, flat_config
from rlzoo_lab.display.run import samples
from rlzoo_lab.view.blocks import Block, Column, Table, Text, column
from rlzoo_lab.view.numbers import gain_text, sparkline


def closing(summary: dict[str, Any], folder: RunFolder) -> list[Block]:
    """The run before and after training, comparable earlier runs, and a few samples."""
    mine = _record(folder, summary)
    earlier, others = comparable(mine)
    shown: list[Block] = [*beside_earlier(mine, earlier)]
    if summary.get("eval_gain_interval"):
        shown.append(Text(gain_text(summary["eval_gain"], *summary["eval_gain_interval"])))
    if others:
        shown.append(Text(
            f"Not shown: {others} run{'s' * (others > 1)} in {folder.path.parent} with a different "
            "task, data, model, budget or evaluation.", "faint"))  # fmt: skip
    last = samples(deque(folder.lines("samples.jsonl"), 4), "last samples")
    place = shlex.quote(str(folder.path))
    after = ", ".join(f"rlzoo {verb} {place}" for verb in ("report", "trace", "doctor"))
    return [*shown, last, Text(f"run folder: {folder.path}"), Text(f"next: {after}", "faint")]


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


def beside_earlier(mine: Record, earlier: Sequence[Record]) -> tuple[Text, Table]:
    """A row for each run, labeled by the settings in which these runs differ."""
    summary, records = mine.summary, [*earlier, mine]
    title = (
        f"{summary['task']}: held-out {summary['eval_metric']}, {summary['eval_samples']} samples"
        f"{_of_prompts(summary)}, 95 % interval"
    )
    columns = [
        Column("run", [r.path.name for r in records]),
        Column("what", labels(records), left=True),
        column("seed", (r.seed for r in records)),
        column("before", (r.before for r in records), "{:.3f}".format),
        column("after", (r.score for r in records), "{:.3f}".format),
        Column("interval", list(map(_interval, records))),
        Column("greedy", [_greedy(r.summary) for r in records]),
        column("s", (r.summary["seconds"] for r in records), "{:.0f}".format),
        column("tokens", (r.summary["tokens"] for r in records), "{:,}".format),
        Column("reward", [sparkline(_rewards(r), 12) for r in records], left=True),
    ]
    return Text(title, "title"), Table(columns, best=len(earlier))


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
