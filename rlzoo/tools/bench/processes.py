"""What several processes take of one's wall time: runs of a few steps, by torchrun on CPUs."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

Row = dict[str, Any]


COUNTS = (1, 2)

REWARD = "rewards.python.function=rlzoo.tools.bench.peer_trl:reward"  # where each process finds it


def measure(words: list[str], workload: Row, threads: int, folder: Path) -> Iterator[Row]:
    """A row for each of `COUNTS`: seconds and tokens of a step, between the ends of two."""
    alone = None
    for n in COUNTS:
        steps = workload["warmup"] + workload["repeat"] + 1
        more = [REWARD, f"train.steps={steps}", "eval.samples=4", "eval.every=0"]
        place = Path(tempfile.mkdtemp(dir=folder)) / "run"
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
        done = subprocess.run(
            [sys.executable, *(launcher if n > 1 else []), "-m", "rlzoo", "run",
             *words, *more, f"run.dir={place}"],
            capture_output=True, text=True, cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        row: Row = {"processes": n, "by": "rlzoo"}
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            yield {**row, "error": (lines or ["no word of why"])[-1]}
            return
        row |= timed(place, workload["warmup"])
        alone = row["wall_seconds"] if n == 1 else alone
        yield {**row, "wall_share": row["wall_seconds"] / alone if alone and n > 1 else None}


def timed(place: Path, warmup: int) -> Row:
    """Medians over a run's steps but the first ones, which warm up."""
    lines = [json.loads(x) for x in (place / "metrics.jsonl").read_text().splitlines()]
    lines = [x for x in lines if "perf/seconds" in x][warmup:]
    found = [
        (b["perf/seconds"] - a["perf/seconds"], b["perf/tokens"] - a["perf/tokens"])
        for a, b in pairwise(lines)
    ]
    summary = json.loads((place / "summary.json").read_text())
    return {
        "tokens": statistics.median(tokens for _, tokens in found),
        "wall_seconds": statistics.median(seconds for seconds, _ in found),
        "tokens_per_wall_second": statistics.median(tokens / s for s, tokens in found),
        "peak_mb": summary["peak_rss_mb"],  # of the first
        "repeat": len(found),
    }
