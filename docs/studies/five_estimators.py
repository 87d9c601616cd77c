"""Five estimators on a pretrained model, five seeds each: a table of docs/models.md.

    python docs/studies/five_estimators.py [--dir FOLDER] [--seeds N]    about 2 CPU hours

Ten steps of recipe smollm2_sums; only the estimator differs, and what it needs: a critic as large
as the policy, with LoRA, for the two of PPO. Runs that FOLDER/runs.jsonl holds are not repeated.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import DOCS, put, recorded, table
from rlzoo_lab.stats import mean_interval, t_interval

CRITIC = "whiten=batch critic.lr=2.5e-4 critic.minibatches=4"
ROWS = {
    "grpo": "estimator=grpo",
    "rloo": "estimator=rloo",
    "reinforce_pp": "estimator=reinforce whiten=batch",
    "ppo, lam=0.95": f"estimator=gae estimator.lam=0.95 {CRITIC}",
    "ppo, lam=1": f"estimator=gae estimator.lam=1 {CRITIC}",
}
STEPS, LAST = 10, 3  # explained variance is a mean of the last steps


def one(place: Path, words: str, seed: int) -> dict[str, Any]:
    """A run in a process of its own, at one thread: what it measured, and what it cost."""
    fixed = ["recipe=smollm2_sums", f"train.steps={STEPS}", f"checkpoint.every={STEPS}",
             "run.threads=1", f"seed={seed}", f"run.dir={place}", "run.overwrite=true"]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rlzoo", "run", *fixed, *words.split()]
    subprocess.run(
        command, check=True, stdout=sys.stderr, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"words": words, "seed": seed, "cpu_s": round(seconds), **measured(place)}


def measured(place: Path) -> dict[str, Any]:
    """What a run's folder holds: accuracies at its start and at step STEPS, tokens, memory."""
    text = (place / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(x) for x in text.splitlines()]
    held = {x["step"]: x for x in lines if "eval/accuracy" in x}
    steps = [x for x in lines if "reward/mean" in x and x["step"] <= STEPS]
    last = held[STEPS]
    explained = [x["critic/vf_explained_var"] for x in steps if "critic/vf_explained_var" in x]
    summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    return {
        "before": held[0]["eval/accuracy"],
        "after": last["eval/accuracy"],
        "greedy": last["eval/greedy"],
        "tokens": sum(x["tokens/gen"] for x in steps),
        "critic": explained,
        "peak_mib": round(summary["peak_rss_mb"]),
    }


def line(name: str, found: list[dict], first: list[dict]) -> list[str]:
    ends = [row["after"] for row in found]
    low, high = mean_interval(ends)
    gap = t_interval([a - b["after"] for a, b in zip(ends, first, strict=True)])
    mean = statistics.mean(ends) - statistics.mean(b["after"] for b in first)
    critics = [x for row in found for x in row["critic"][-LAST:]]
    return [
        name,
        f"{statistics.mean(ends):.3f} [{low:.3f}, {high:.3f}]",
        f"{statistics.mean(row['greedy'] for row in found):.3f}",
        f"{mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if gap and found is not first else "",
        f"{statistics.mean(critics):.2f}" if critics else "",
        f"{statistics.mean(row['cpu_s'] for row in found):.0f}",
        f"{max(row['peak_mib'] for row in found) / 1024:.1f}",
    ]


def report(rows: list[dict[str, Any]]) -> str:
    """The table, of the seeds that every row has."""
    by = {(row["words"], row["seed"]): row for row in rows}
    seeds = sorted({s for _, s in by if all((words, s) in by for words in ROWS.values())})
    found = {name: [by[words, s] for s in seeds] for name, words in ROWS.items()}
    first = next(iter(found.values()))
    head = [f"{len(seeds)} seeds", f"step {STEPS}", "greedy", "minus grpo", "critic explains",
            "CPU s", "GiB"]  # fmt: skip
    return table(head, [line(name, some, first) for name, some in found.items()] if seeds else [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("runs/five-estimators"))
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    file = asked.dir / "runs.jsonl"
    done = {(row["words"], row["seed"]) for row in recorded(file)}
    for seed in range(asked.seeds):
        for number, words in enumerate(ROWS.values()):
            if (words, seed) in done:
                continue
            row = one(asked.dir / f"{number}-{seed}", words, seed)
            with file.open("a", encoding="utf-8") as log:
                log.write(json.dumps(row) + "\n")
    put(DOCS / "models.md", "five", report(recorded(file)))
