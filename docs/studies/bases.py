"""Train from the honest bases and write the table of docs/models.md.

    python docs/studies/bases.py [WORKERS]   25 CPU minutes; resumes where it stopped

Each run is that of `rlzoo run recipe=RECIPE` with the words of its case, evaluated before and
after, without a run folder; results land in runs/bases.jsonl. The text around the table stays.
"""

import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import rlzoo
from common import put, recorded

ZOO = rlzoo.load_zoo()
DOCS = Path(__file__).resolve().parents[1]
PAGE, RESULTS = DOCS / "models.md", DOCS.parent / "runs" / "bases.jsonl"
SEEDS = range(10)
RECIPES = ("ppo_gae", "grpo")
COMMON = ["rollout.samples=4", "eval.samples=128", "run.threads=1"]
CASES = {
    "addition": "model=novice task=addition train.steps=40 rollout.prompts=32 actor.lr=3e-4",
    "marks": "model=blind task=marks train.steps=60 rollout.prompts=16 actor.lr=5e-4",
    "marks_long": "model=blind task=marks_long train.steps=60 rollout.prompts=16 actor.lr=5e-4",
    "marks_dense": "model=blind task=marks_dense train.steps=60 rollout.prompts=16 actor.lr=5e-4",
    "local_search": "model=turns task=local_search train.steps=24 rollout.prompts=16 actor.lr=1e-3",
}


def trained(todo: tuple[str, str, int, list[str]]) -> dict:
    """Sampled and greedy accuracy before and after, and CPU seconds of the whole run."""
    case, recipe, seed, words = todo
    began = time.process_time()
    trainer = rlzoo.open_recipe(recipe, [*words, f"seed={seed}"], zoo=ZOO)
    config = trainer.plan.recipe.config
    before = trainer.evaluate(config.eval.samples)
    while trainer.steps < config.train.steps:
        trainer.step(trainer.steps / config.train.steps)
    after = trainer.evaluate(config.eval.samples)
    return {
        "case": case,
        "recipe": recipe,
        "seed": seed,
        "words": words,
        "greedy_before": before["eval/greedy"],
        "sampled_before": before["eval/accuracy"],
        "greedy_after": after["eval/greedy"],
        "sampled_after": after["eval/accuracy"],
        "seconds": time.process_time() - began,
    }


def missing(done: list[dict]) -> Iterator[tuple[str, str, int, list[str]]]:
    """The cases still to train; a case whose words were changed is trained again."""
    known = {(row["recipe"], row["seed"], *row["words"]) for row in done}
    for seed in SEEDS:
        for case, own in CASES.items():
            for recipe in RECIPES:
                words = [*own.split(), *COMMON]
                if (recipe, seed, *words) not in known:
                    yield case, recipe, seed, words


def table(rows: list[dict]) -> str:
    lines = [
        "| task | recipe | seeds | greedy before | after | sampled before | after | "
        "worst seed, greedy | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, own in CASES.items():
        for recipe in RECIPES:
            words = [*own.split(), *COMMON]
            some = [r for r in rows if r["recipe"] == recipe and r["words"] == words]
            if not some:
                continue
            means = [
                f"{statistics.mean(r[f'{how}_{when}'] for r in some):.3f}"
                for how in ("greedy", "sampled")
                for when in ("before", "after")
            ]
            worst = min(r["greedy_after"] for r in some)
            seconds = statistics.mean(r["seconds"] for r in some)
            cells = [case, f"`{recipe}`", str(len(some)), *means, f"{worst:.3f}", f"{seconds:.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
    commands = "\n".join(
        f"rlzoo run recipe=ppo_gae {own} {' '.join(COMMON)} eval.every=0" for own in CASES.values()
    )
    return "\n".join(lines) + f"\n\n```bash\n{commands}\n```\n"


def main(workers: int = 2) -> None:
    rows = recorded(RESULTS)
    with multiprocessing.get_context("fork").Pool(workers) as pool, RESULTS.open("a") as file:
        for row in pool.imap_unordered(trained, list(missing(rows))):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
            print({name: x for name, x in row.items() if name != "words"}, flush=True)
    put(PAGE, "bases", table(rows).strip())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
