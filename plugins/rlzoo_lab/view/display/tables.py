"""The end of a run: its numbers and samples. No torch here."""

import shlex
from collections import deque
from typing import Any

from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import REWARD
from rlzoo_lab.view.blocks import Block, Column, Table, Text
from rlzoo_lab.view.display.run import samples
from rlzoo_lab.view.numbers import NONE, gain_text, sparkline


def closing(summary: dict[str, Any], folder: RunFolder) -> list[Block]:
    """The run before and after training, and a few samples."""
    shown: list[Block] = [*before_and_after(summary, folder)]
    if summary.get("eval_gain_interval"):
        shown.append(Text(gain_text(summary["eval_gain"], *summary["eval_gain_interval"])))
    last = samples(deque(folder.lines("samples.jsonl"), 4), "last samples")
    place = shlex.quote(str(folder.path))
    after = ", ".join(f"rlzoo {verb} {place}" for verb in ("report", "trace", "doctor"))
    return [*shown, last, Text(f"run folder: {folder.path}"), Text(f"next: {after}", "faint")]


def before_and_after(summary: dict[str, Any], folder: RunFolder) -> tuple[Text, Table]:
    title = (
        f"{summary['task']}: held-out {summary['eval_metric']}, {summary['eval_samples']} samples"
        f"{_of_prompts(summary)}, 95 % interval"
    )
    low, high = summary["eval_after_interval"]
    rewards = [x[REWARD] for x in folder.lines("metrics.jsonl") if REWARD in x]
    cells = {
        "run": folder.path.name,
        "seed": str(summary["seed"]),
        "before": f"{summary['eval_before']:.3f}",
        "after": f"{summary['eval_after']:.3f}",
        "interval": f"{low:.3f}-{high:.3f}",
        "greedy": _greedy(summary),
        "s": f"{summary['seconds']:.0f}",
        "tokens": f"{summary['tokens']:,}",
        "reward": sparkline(rewards, 12),
    }
    table = Table([Column(k, [x], left=k == "reward") for k, x in cells.items()], best=0)
    return Text(title, "title"), table


def _greedy(summary: dict[str, Any]) -> str:
    """Greedy accuracy before and after."""
    before, after = (summary.get(f"eval_greedy_{when}") for when in ("before", "after"))
    return NONE if before is None or after is None else f"{before:.3f} > {after:.3f}"


def _of_prompts(summary: dict[str, Any]) -> str:
    """How many prompts the samples are of, where some came again."""
    different = summary.get("eval_prompts") or summary["eval_samples"]
    few = different < summary["eval_samples"]
    return f" of {different} prompt{'s' * (different > 1)}" if few else ""
