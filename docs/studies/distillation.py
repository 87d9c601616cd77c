"""Teach a student by a teacher, in several ways, and write the table of docs/results.md.

    python docs/studies/distillation.py [SEEDS]   5 CPU minutes for ten; resumes where it stopped

The teacher is trained once, in runs/distillation/; results land in runs/distillation.jsonl. The
text around the table stays.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import rlzoo
from common import put, recorded
from rlzoo.cli import main as command
from rlzoo_lab.stats import mean_interval

DOCS = Path(__file__).resolve().parents[1]
PAGE, RUNS = DOCS / "results.md", DOCS.parent / "runs"
RESULTS, PLACE = RUNS / "distillation.jsonl", RUNS / "distillation"
TEACHER = PLACE / "teacher" / "model"
TEACHING = (
    "model=nano task=addition train.steps=80 rollout.prompts=32 rollout.samples=4 actor.lr=3e-4 "
    "actor.lr_schedule=linear eval.samples=256 eval.every=0 run.threads=1"
)
STUDENT = (
    "model=novice task=addition train.steps=60 rollout.prompts=32 rollout.samples=4 actor.lr=1e-3 "
    "actor.lr_schedule=linear eval.samples=256 eval.every=0 run.threads=1"
)
SFT = "--batch 128 --lr 1e-3 --test-fraction 0.02 --device cpu"
WAYS = ("opd", "vopd", "iw_opd", "mopd", "sft")
FIRST = ("opd", "sft")  # what the page is about


def trained(way: str, seed: int, zoo: Any) -> dict:
    """How good the student is before and after."""
    began = time.process_time()
    if way == "sft":
        before, after = {}, supervised(seed, zoo)
    else:
        words = [*STUDENT.split(), f"teacher.path={TEACHER}", f"seed={seed}"]
        trainer = rlzoo.open_recipe(way, words, zoo=zoo)
        before, steps = trainer.evaluate(), trainer.plan.recipe.config.train.steps
        while trainer.steps < steps:
            trainer.step(trainer.steps / steps)
        after = trainer.evaluate()
    line = {"way": way, "seed": seed, "seconds": time.process_time() - began}
    for when, found in (("before", before), ("after", after)):
        line |= {f"{k}_{when}": found[f"eval/{n}"] for k, n in NAMES.items() if found}
    return line


NAMES = {"sampled": "accuracy", "greedy": "greedy"}


def supervised(seed: int, zoo: Any) -> dict:
    """SFT on as many responses of the teacher, to the same prompts, in as many optimizer steps."""
    same = [w for w in STUDENT.split() if not w.startswith("model=")]
    teacher = rlzoo.open_recipe("grpo", [*same, f"model.path={TEACHER}", f"seed={seed}"], zoo=zoo)
    data, out = PLACE / f"seed{seed}.jsonl", PLACE / f"sft{seed}"
    with data.open("w") as file:
        for step in range(teacher.plan.recipe.config.train.steps):
            teacher.steps = step
            batch = teacher.sample().batch
            for prompt, response in zip(batch["prompts"], batch["responses"], strict=True):
                print(json.dumps({"prompt": prompt, "response": response}), file=file)
    words = [str(data), "--model", "novice", "--out", str(out), "--seed", str(seed), *SFT.split()]
    assert command(["model", "sft", *words]) == 0
    return rlzoo.open_recipe("grpo", [*same, f"model.path={out}"], zoo=zoo).evaluate()


def table(rows: list[dict]) -> str:
    lines = [
        "| method | seeds | greedy | worst seed | sampled | 95 % | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        some = [r for r in rows if r["way"] == way]
        if len(some) < 2:
            continue
        greedy, sampled = ([r[f"{name}_after"] for r in some] for name in reversed(NAMES))
        low, high = mean_interval(sampled)
        lines.append(
            f"| `{way}` | {len(some)} | {statistics.mean(greedy):.3f} | {min(greedy):.3f} | "
            f"{statistics.mean(sampled):.3f} | [{low:.2f}, {high:.2f}] | "
            f"{statistics.mean(r['seconds'] for r in some):.0f} |"
        )
    return "\n".join(lines) + "\n"


def wanted(seeds: int) -> list[tuple[str, int]]:
    return [(way, seed) for seed in range(seeds) for way in WAYS]


def main(seeds: int = 10) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    zoo = rlzoo.load_zoo()
    if not TEACHER.exists():
        rlzoo.run("grpo", [*TEACHING.split(), f"run.dir={TEACHER.parent}", "run.overwrite=true"])
    rows = recorded(RESULTS)
    done = {(row["way"], row["seed"]) for row in rows}
    with RESULTS.open("a") as file:
        for way, seed in sorted(wanted(seeds), key=lambda one: one[0] not in FIRST):
            if (way, seed) not in done:
                rows.append(trained(way, seed, zoo))
                print(json.dumps(rows[-1]), file=file, flush=True)
            if len({row["seed"] for row in rows}) > 1:
                put(PAGE, "distillation", table(rows).strip())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
