"""The same sweep by several executors: what `on_slurm.py` and `on_ray.py` share."""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rlzoo.cli import main

UNTOLD = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
WORDS = ["recipe=ppo_gae,grpo", "model=nano", "device=cpu", "rollout.prompts=4",
         "rollout.samples=4", "train.steps=6", "eval.samples=16", "checkpoint.every=1"]  # fmt: skip

Metrics = dict[str, list[dict]]


def sweep(folder: Path, seeds: int, *on: str, store: Path | None = None) -> Metrics:
    """Each run's metrics, by its name."""
    shutil.rmtree(folder, ignore_errors=True)
    words = [*WORDS, f"seed=0..{seeds - 1}", "--dir", str(folder), "--jobs", "2"]
    kept = ["--store", f"file://{store}"] if store else []
    assert main(["sweep", *words, *kept, "--on", *on]) == 0
    found = {
        path.parent.name: [
            {k: v for k, v in json.loads(line).items() if not k.startswith(UNTOLD)}
            for line in path.read_text().splitlines()
        ]
        for path in sorted(folder.glob("*/metrics.jsonl"))
    }
    assert len(found) == 2 * seeds, found.keys()
    return found


def half_done(folder: Path) -> list[Path]:
    """Runs that have two checkpoints and have not ended."""
    return [
        run
        for run in folder.glob("*--seed*")
        if len(list(run.glob("checkpoints/*/manifest.json"))) >= 2
        and not (run / "summary.json").exists()
    ]


def until(what: Callable[[], object]) -> None:
    while not what():
        time.sleep(0.05)


def in_a_folder(try_all: Callable[[Path], None]) -> None:
    """The folder of the command line, or one that goes again."""
    if len(sys.argv) > 1:
        try_all(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            try_all(Path(folder))
