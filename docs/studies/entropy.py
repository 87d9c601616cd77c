"""Bring about an entropy collapse, try seven knobs on it, and write the table of docs/results.md.

    python docs/studies/entropy.py    about 8 CPU minutes; resumes where it stopped

Results land in runs/entropy.jsonl, a line per run. The text around the table stays. The settings
of the knobs are published ones, fixed before the runs; only the collapse was looked for, with
seeds 100 and 101.
"""

import json
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import rlzoo
from common import DOCS, put, recorded, table
from rlzoo_lab.stats import mean_interval, t_interval

PAGE, RESULTS = DOCS / "results.md", DOCS.parent / "runs" / "entropy.jsonl"
SEEDS = range(10)
COMMON = (
    "model=blind task=marks kl.place=none policy_loss=ppo_clip aggregation=token_mean "
    "train.steps=48 train.minibatches=1 train.epochs=4 rollout.prompts=8 rollout.samples=4 "
    "actor.lr=8e-4 eval.samples=128 eval.every=0 run.threads=1"
)
KNOBS = {
    "none": "",
    "clip-higher 0.28": "policy_loss.clip_high=0.28",
    "entropy bonus 0.01": "actor.entropy_coef=0.01",
    "adaptive bonus": "policy_loss=ppo_entropy",
    "`clip_cov`": "policy_loss=clip_cov",
    "`kl_cov`": "policy_loss=kl_cov",
    "KL to the reference 0.04": "kl.name=k3 kl.place=loss kl.coef=0.04",
    "`high_entropy`": "policy_loss=high_entropy",
}
FIRST = next(iter(KNOBS))
LAST = 10  # steps over which the entropy at the end is a mean
LOW, LEARNED = 0.1, 0.9  # nats per token, accuracy: below both a run is stuck


def words_of(knob: str, seed: int) -> str:
    return f"{COMMON} {KNOBS[knob]} seed={seed}"


def trained(words: str, zoo: Any) -> dict:
    """A run's accuracy on held-out prompts, and its entropy in the first and the last steps."""
    began = time.process_time()
    trainer = rlzoo.open_recipe("grpo", words.split(), zoo=zoo)
    entropies, steps = [], trainer.plan.recipe.config.train.steps
    while trainer.steps < steps:
        entropies.append(trainer.step(trainer.steps / steps)[1]["actor/entropy"])
    after = trainer.evaluate()
    return {
        "words": words,
        "sampled": after["eval/accuracy"],
        "greedy": after["eval/greedy"],
        "before": entropies[0],
        "entropy": statistics.mean(entropies[-LAST:]),
        "seconds": time.process_time() - began,
    }


def line(knob: str, found: list[dict], first: list[dict]) -> list[str]:
    """A knob's row: entropy, accuracy, its difference from no knob by seed, how many are stuck."""
    ends = [row["sampled"] for row in found]
    entropies = [row["entropy"] for row in found]
    low, high = mean_interval(entropies)
    gap = t_interval([a - b["sampled"] for a, b in zip(ends, first, strict=True)])
    mean = statistics.mean(ends) - statistics.mean(b["sampled"] for b in first)
    stuck = sum(row["entropy"] < LOW and row["sampled"] < LEARNED for row in found)
    return [
        knob,
        f"{statistics.mean(entropies):.3f} [{low:.3f}, {high:.3f}]",
        f"{statistics.mean(ends):.3f}",
        f"{mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if gap and knob != FIRST else "",
        f"{min(ends):.3f}",
        f"{stuck}/{len(found)}",
    ]


def results(rows: dict[str, dict]) -> str:
    """The table, of the seeds that every knob has."""
    seeds = [s for s in SEEDS if all(words_of(knob, s) in rows for knob in KNOBS)]
    found = {knob: [rows[words_of(knob, s)] for s in seeds] for knob in KNOBS}
    head = ["knob", "entropy at the end", "accuracy", "minus none", "worst seed", "stuck"]
    lines = [line(knob, some, found[FIRST]) for knob, some in found.items()]
    seconds = statistics.mean(row["seconds"] for row in rows.values())
    runs = len(seeds) * len(KNOBS)
    return table(head, lines) + f"\n\nThe study took {runs} runs of {seconds:.1f} CPU seconds each."


def main() -> None:
    rows = {row["words"]: row for row in recorded(RESULTS)}
    zoo = rlzoo.load_zoo()
    with RESULTS.open("a", encoding="utf-8") as file:
        for seed in SEEDS:
            for knob in KNOBS:
                if (words := words_of(knob, seed)) not in rows:
                    rows[words] = trained(words, zoo)
                    print(json.dumps(rows[words]), file=file, flush=True)
    put(PAGE, "entropy", results(rows))


if __name__ == "__main__":
    main()
