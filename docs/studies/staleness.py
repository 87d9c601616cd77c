"""Train on stale samples, by eleven losses, and write the table of docs/results.md.

    python docs/studies/staleness.py    about 7 CPU minutes; resumes where it stopped

Each run is that of `rlzoo run` with the words of its row, without a run folder; results land in
runs/staleness.jsonl. The text around the table stays.
"""

import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import rlzoo
from common import put, recorded
from rlzoo_lab.stats import mean_interval

DOCS = Path(__file__).resolve().parents[1]
PAGE, RESULTS = DOCS / "results.md", DOCS.parent / "runs" / "staleness.jsonl"
SEEDS, STALENESS = range(10), (0, 4, 16)
COMMON = (
    "model=blind task=marks kl.place=none train.steps=40 train.minibatches=1 rollout.prompts=16 "
    "rollout.samples=4 actor.lr=1e-3 eval.samples=128 eval.every=0 run.threads=1"
)
LOSSES = {
    "none": "policy_loss=ppo_clip",
    "PPO's ratio to the sampler": "policy_loss=ppo_clip rollout.old_log_probs=sampled",
    "CISPO's ratio to the sampler": (
        "policy_loss=cispo policy_loss.clip_low=1 rollout.old_log_probs=sampled"
    ),
    "TIS": "policy_loss=ppo_clip correction=tis",
    "IcePop": "policy_loss=ppo_clip correction=icepop",
    "rejection": "policy_loss=ppo_clip correction=rejection",
    "score centering": "sampler.distribution=true policy_loss=score_centering policy_loss.cap=null",
    "TIS and score centering": "sampler.distribution=true policy_loss=score_centering",
    "M2PO": "policy_loss=m2po rollout.old_log_probs=sampled",
    "IPO": "policy_loss=ipo",
    "V-trace": "policy_loss=ppo_clip estimator=vtrace whiten=batch",
}
OF_ITS_OWN = ("V-trace",)  # has a critic, so that it makes another update of fresh samples, too


def words_of(loss: str, staleness: int, seed: int) -> str:
    return f"{COMMON} {LOSSES[loss]} rollout.staleness={staleness} seed={seed}"


def trained(words: str, zoo: Any) -> dict:
    """A run's final result, and how far its sampler was from the policy in its last ten steps."""
    began = time.process_time()
    trainer = rlzoo.open_recipe("grpo", words.split(), zoo=zoo)
    gaps, steps = [], trainer.plan.recipe.config.train.steps
    while trainer.steps < steps:
        gaps.append(trainer.step(trainer.steps / steps)[1]["sampler/log_prob_gap"])
    after = trainer.evaluate()
    return {
        "words": words,
        "sampled": after["eval/accuracy"],
        "greedy": after["eval/greedy"],
        "gap": statistics.mean(gaps[-10:]),
        "seconds": time.process_time() - began,
    }


def losses_at(staleness: int) -> list[str]:
    """At 0 the losses make the same update of the same samples, one step per batch at ratio 1:
    that is trained once."""
    return list(LOSSES) if staleness else [next(iter(LOSSES)), *OF_ITS_OWN]


def called(loss: str, staleness: int) -> str:
    return loss if staleness or loss in OF_ITS_OWN else "any but V-trace"


def wanted() -> Iterator[str]:
    """The words of every run."""
    for seed in SEEDS:
        for staleness in STALENESS:
            for loss in losses_at(staleness):
                yield words_of(loss, staleness, seed)


def table(rows: dict[str, dict]) -> str:
    lines = [
        "| loss | staleness | sampled accuracy | 95 % | greedy | worst seed | collapsed | "
        "gap to the sampler, nats |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for staleness in STALENESS:
        for loss in losses_at(staleness):
            some = [rows[w] for s in SEEDS if (w := words_of(loss, staleness, s)) in rows]
            if len(some) < 2:
                continue
            ends = [r["sampled"] for r in some]
            low, high = mean_interval(ends)
            apart = sum(x < BEFORE / 2 for x in ends)
            lines.append(
                f"| {called(loss, staleness)} | {staleness} | {statistics.mean(ends):.3f} | "
                f"[{low:.2f}, {high:.2f}] | {statistics.mean(r['greedy'] for r in some):.3f} | "
                f"{min(ends):.3f} | {apart}/{len(some)} | "
                f"{statistics.mean(r['gap'] for r in some):.3f} |"
            )
    seconds = statistics.mean(r["seconds"] for r in rows.values())
    runs = f"The table is from {len(rows)} runs of {seconds:.1f} CPU seconds each."
    return "\n".join(lines) + f"\n\n{runs}\n"


BEFORE = 0.172  # sampled accuracy of model=blind on marks, as docs/models.md has it


def main() -> None:
    rows = {row["words"]: row for row in recorded(RESULTS)}
    zoo = rlzoo.load_zoo()
    with RESULTS.open("a") as file:
        for words in wanted():
            if words not in rows:
                rows[words] = trained(words, zoo)
                print(json.dumps(rows[words]), file=file, flush=True)
    put(PAGE, "staleness", table(rows).strip())


if __name__ == "__main__":
    main()
