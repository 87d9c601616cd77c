"""Several teachers, and a policy that teaches itself: two tables of docs/results.md.

    python docs/studies/teaching.py [SEEDS] [domains|self]     about 6 CPU minutes for five

It resumes where it stopped. Teachers and bases are trained once, in runs/teaching/; results land
in runs/teaching.jsonl. The text around the tables stays.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch

import rlzoo
from common import put, recorded
from rlzoo.cli import main as command
from rlzoo.plugin.component import Example
from rlzoo_lab.stats import mean_interval

DOCS = Path(__file__).resolve().parents[1]
PAGE, RUNS = DOCS / "results.md", DOCS.parent / "runs"
RESULTS, PLACE = RUNS / "teaching.jsonl", RUNS / "teaching"

# ---------------------------------------------------------------- a teacher for each domain

DOMAINS = ("addition", "reverse")
ROWS, PROMPTS = PLACE / "both.jsonl", 400  # of each domain
TEACHING = (
    "model=nano train.steps=80 rollout.prompts=32 rollout.samples=4 actor.lr=3e-4 "
    "actor.lr_schedule=linear eval.samples=256 eval.every=0 run.threads=1"
)
BOTH = (
    f"model=nano task=dataset task.path={ROWS} task.domain=domain task.test_fraction=0.02 "
    "rollout.max_new_tokens=7 train.steps=60 rollout.prompts=32 rollout.samples=4 actor.lr=1e-3 "
    "actor.lr_schedule=linear train.minibatches=1 eval.samples=256 run.threads=1"
)


def taught(domain: str) -> Path:
    return PLACE / domain / "model"


OWN = ", ".join(f"{d}: {taught(d)}" for d in DOMAINS)
WAYS = {  # label of the table -> recipe and words
    "none (`grpo` on both tasks)": ("grpo", ["kl.place=none"]),
    "addition's teacher for both": (
        "mopd",
        ["estimator.alpha=0", f"teacher.path={taught('addition')}"],
    ),
    "reverse's teacher for both": (
        "mopd",
        ["estimator.alpha=0", f"teacher.path={taught('reverse')}"],
    ),
    "each domain's teacher": ("mopd", ["estimator.alpha=0", f"teacher.domains={{{OWN}}}"]),
    "each domain's teacher and the outcome": ("mopd", [f"teacher.domains={{{OWN}}}"]),
}

# ---------------------------------------------------------------- a policy that teaches itself

READER = PLACE / "reader"
SHOWN = "{solution};{prompt}"
ITSELF = (
    f"model.path={READER} task=addition train.steps=60 rollout.prompts=16 rollout.samples=8 "
    "actor.lr=1e-3 actor.lr_schedule=linear train.minibatches=1 eval.samples=256 run.threads=1"
)
SELF = {
    "`grpo`": ("grpo", ["kl.place=none"]),
    "`sdpo`": ("sdpo", [f"columns.self_teacher_log_probs.template='{SHOWN}'"]),
    "`rlsd`": ("rlsd", [f"columns.self_teacher_log_probs.template='{SHOWN}'"]),
}


def prepare_domains(zoo: Any) -> None:
    """Teachers, and the data of both domains."""
    if not ROWS.exists():
        rows = []
        for domain in DOMAINS:
            task = rlzoo.open_recipe("grpo", ["model=nano", f"task={domain}"], zoo=zoo).plan.task
            for item in task.draw("train", PROMPTS, torch.Generator().manual_seed(0)):
                one = Example(*item)
                rows.append({"prompt": one.prompt, "answer": one.answer, "domain": domain})
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for domain in DOMAINS:
        if not taught(domain).exists():
            where = [f"task={domain}", f"run.dir={taught(domain).parent}", "run.overwrite=true"]
            rlzoo.run("grpo", [*TEACHING.split(), *where], zoo=zoo)


def prepare_reader(zoo: Any) -> None:
    """A base that reads what it is shown: `novice`, fine-tuned on as many prompts with a right
    answer before them, which it learns to repeat, as prompts without, to which it keeps its own
    answers."""
    if READER.exists():
        return
    words = ["model=novice", "task=addition", "rollout.prompts=64", "rollout.samples=1"]
    novice, data = rlzoo.open_recipe("rloo", [*words, "rollout.samples=2"], zoo=zoo), []
    for step in range(40):
        novice.steps = step
        batch = novice.sample().batch
        for prompt, answer, said in zip(
            batch["prompts"], batch["answers"], batch["responses"], strict=True
        ):
            shown = SHOWN.format(prompt=prompt, solution=answer)
            data += [{"prompt": prompt, "response": said}, {"prompt": shown, "response": answer}]
    file = PLACE / "reader.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
    how = "--epochs 6 --batch 128 --lr 1e-3 --device cpu"
    assert command(["model", "sft", str(file), "--model", "novice", "--out", str(READER),
                    *how.split()]) == 0  # fmt: skip


# ---------------------------------------------------------------- runs and tables


def scored(trainer: Any, task: str, zoo: Any) -> dict[str, float]:
    """A policy's scores on a task's own held-out prompts."""
    model = trainer.plan.recipe.config.model.path
    words = [f"model.path={model}", f"task={task}", "eval.samples=256", "run.threads=1"]
    other = rlzoo.open_recipe("grpo", words, zoo=zoo)
    other.policy.model.load_state_dict(trainer.policy.model.state_dict())
    found = other.evaluate()
    return {"sampled": found["eval/accuracy"], "greedy": found["eval/greedy"]}


def trained(study: str, way: str, seed: int, zoo: Any) -> dict:
    """The final scores of a way of teaching, on each task."""
    recipe, words = (WAYS if study == "domains" else SELF)[way]
    common, tasks = (BOTH, DOMAINS) if study == "domains" else (ITSELF, ("addition",))
    began = time.process_time()
    trainer = rlzoo.open_recipe(recipe, [*common.split(), *words, f"seed={seed}"], zoo=zoo)
    line = {"study": study, "way": way, "seed": seed}
    if seed == 0:
        line |= {f"{task} before": scored(trainer, task, zoo) for task in tasks}
    steps = trainer.plan.recipe.config.train.steps
    while trainer.steps < steps:
        trainer.step(trainer.steps / steps)
    line |= {task: scored(trainer, task, zoo) for task in tasks}
    return line | {
        "tokens": trainer.world.engine.meter.tokens,
        "seconds": time.process_time() - began,
    }


def cell(some: list[dict], task: str, name: str = "sampled") -> str:
    ends = [row[task][name] for row in some]
    low, high = mean_interval(ends)
    return f"{statistics.mean(ends):.3f} [{low:.2f}, {high:.2f}]"


def domains_table(rows: list[dict]) -> str:
    lines = [
        "| teacher | seeds | addition, sampled (95 %) | reverse, sampled (95 %) | CPU s |",
        "|---|---|---|---|---|",
    ]
    before = next(r for r in rows if "addition before" in r)
    start = [before[f"{d} before"]["sampled"] for d in DOMAINS]
    lines.append(f"| before training | | {start[0]:.3f} | {start[1]:.3f} | |")
    for way in WAYS:
        some = [r for r in rows if r["way"] == way]
        if len(some) > 1:
            seconds = statistics.mean(r["seconds"] for r in some)
            cells = " | ".join(cell(some, d) for d in DOMAINS)
            lines.append(f"| {way} | {len(some)} | {cells} | {seconds:.0f} |")
    return "\n".join(lines)


def self_table(rows: list[dict]) -> str:
    lines = [
        "| recipe | seeds | sampled (95 %) | greedy (95 %) | tokens | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    before = next(r for r in rows if "addition before" in r)["addition before"]
    lines.append(f"| before training | | {before['sampled']:.3f} | {before['greedy']:.3f} | | |")
    for way in SELF:
        some = [r for r in rows if r["way"] == way]
        if len(some) > 1:
            cells = f"{cell(some, 'addition')} | {cell(some, 'addition', 'greedy')}"
            tokens, seconds = (statistics.mean(r[n] for r in some) for n in ("tokens", "seconds"))
            lines.append(f"| {way} | {len(some)} | {cells} | {tokens:,.0f} | {seconds:.0f} |")
    return "\n".join(lines)


STUDIES = {
    "domains": (prepare_domains, WAYS, domains_table),
    "self": (prepare_reader, SELF, self_table),
}


def main(seeds: int = 5, *only: str) -> None:
    torch.set_num_threads(1)
    zoo = rlzoo.load_zoo()
    PLACE.mkdir(parents=True, exist_ok=True)
    studies = {name: STUDIES[name] for name in only or STUDIES}
    for make, _, _ in studies.values():
        make(zoo)
    rows = recorded(RESULTS)
    done = {(row["study"], row["way"], row["seed"]) for row in rows}
    with RESULTS.open("a", encoding="utf-8") as file:
        for seed in range(seeds):
            for study, (_, ways, _) in studies.items():
                for way in ways:
                    if (study, way, seed) not in done:
                        rows.append(trained(study, way, seed, zoo))
                        print(json.dumps(rows[-1]), file=file, flush=True)
    for study, (_, _, table) in studies.items():
        put(PAGE, study, table([row for row in rows if row["study"] == study]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
