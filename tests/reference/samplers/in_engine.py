"""Runs of grpo on `tiny` with one sampler, in an environment that has vLLM:
`python in_engine.py FOLDER OUT WORD ...`. A run for each seed, in FOLDER; what came out, in OUT."""

import json
import sys
import time
from pathlib import Path

import rlzoo

SEEDS = (0, 1, 2)
STEPS = 20
RECIPE = ("model=tiny", f"train.steps={STEPS}", "train.critic_warmup=0", "eval.every=0",
          "eval.samples=512", "correction=tis", "device=cpu", "run.threads=1")  # fmt: skip


def main() -> None:
    folder, out, *words = sys.argv[1:]
    found = []
    for seed in SEEDS:
        place, cpu = Path(folder) / f"seed{seed}", time.process_time()
        run = rlzoo.run("grpo", [*RECIPE, *words, f"seed={seed}", f"run.dir={place}"], display=None)
        cpu = time.process_time() - cpu
        summary = json.loads((place / "summary.json").read_text())
        steps = [line for line in run.metrics if "sampler/log_prob_gap" in line]
        found.append({
            "seed": seed,
            "before": summary["eval_before"],
            "after": summary["eval_after"],
            "interval": summary["eval_after_interval"],
            "gap": max(line["sampler/log_prob_gap"] for line in steps),
            "cpu_seconds": cpu,
        })  # fmt: skip
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
