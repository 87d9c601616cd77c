"""Two checkouts show the same of frozen runs: `python tests/benchmarks/same_views.py OTHER`.

For a change of how runs are read and shown. The other checkout makes 30 folders once (own runs,
imported logs, damaged folders); then each verb of both reads them, as JSON and in a terminal of 100
columns. What differs is printed as a diff: a change on purpose is to be named where it is made.
The other checkout runs in this interpreter's environment, by PYTHONPATH: nothing is installed.
"""

import argparse
import difflib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from same_runs import HERE, IN_ONE, python

SMALL = ["train.steps=6", "eval.samples=32", "eval.every=3", "run.threads=1", "device=cpu",
         "checkpoint.every=3", "run.save_batches=2", "model=nano"]  # fmt: skip
OWN = {
    **{f"grpo-{seed}": ["grpo", f"seed={seed}"] for seed in range(3)},
    **{f"gae-{seed}": ["ppo_gae", f"seed={seed}"] for seed in range(3)},
    **{f"gae.8-{seed}": ["ppo_gae", "estimator.lam=0.8", f"seed={seed}"] for seed in range(3)},
    "rloo": ["rloo"],
    "mc": ["ppo_gae", "estimator=mc"],
    "shared": ["ppo_gae", "critic.trunk=shared"],
    "lora": ["grpo", "model.lora.rank=2"],
    "stale": ["grpo", "rollout.staleness=1"],
    "turns": ["gigpo", "task=hi_lo", "model=turns"],
    "hot": ["grpo", "actor.lr=3"],
    "still": ["grpo", "actor.lr=1e-12"],
    "no-batches": ["ppo_gae", "run.save_batches=0", "checkpoint.every=0"],
}
STEPS = range(1, 7)
TRL = {"global_step": 6, "log_history": [
    {"step": s, "epoch": s / 10, "loss": 0.1 / s, "reward": s / 8, "kl": 0.01 * s,
     "reward_std": 0.3, "completions/mean_length": 20.0 + s, "learning_rate": 1e-6,
     "grad_norm": 0.5} for s in STEPS]}  # fmt: skip
CHART = "Step,a - train/reward,a - train/reward__MIN\n" + "".join(f"{s},{s / 9},0\n" for s in STEPS)
VERL = "".join(
    f"step:{s} - actor/pg_loss:0.0{s} - actor/entropy:0.9 - actor/grad_norm:0.5 - actor/lr:1e-06 - "
    f"critic/score/mean:0.{s} - critic/rewards/mean:0.{s} - critic/vf_explained_var:-0.5 - "
    f"response_length/mean:12{s}.0 - response_length/clip_ratio:0.1\n" for s in STEPS)  # fmt: skip
LINES = "".join(json.dumps({"step": s, "data": {"critic/score/mean": s / 7}}) + "\n" for s in STEPS)
SOURCES = {"trl": ("trainer_state.json", json.dumps(TRL)), "chart": ("chart.csv", CHART),
           "verl": ("verl.log", VERL), "lines": ("verl.jsonl", LINES)}  # fmt: skip
DAMAGED = ["cut-line", "no-recipe", "no-summary", "nan", "no-weights", "empty", "cut-batch",
           "no-eval"]  # fmt: skip
EACH = [["show"], ["doctor"], ["report"], ["trace"], ["eval", "--prompts", "16"], ["diagnose"]]
ONCE = [
    ["compare", "ALL", "--force"],
    ["compare", *(f"{row}-{seed}" for row in ("grpo", "gae", "gae.8") for seed in range(3))],
    ["compare", "grpo-0", "import-trl", "--force"],
    ["compare", "gae-0", "no-batches", "--force"],
    ["trace", "--rewards", "0", "0", "1", "--values", ".3", ".4", ".6", "--lam", "0.9"],
    ["trace", "grpo", "--rewards", "1", "0"],
    ["check", "gae"], ["check", "grpo"], ["plugins"], ["plugins", "gae"],
    ["help", "keys", "lam"], ["doctor", "nowhere"], ["compare", "nowhere"],
]  # fmt: skip
SHOWN = """
import sys, json, io, contextlib, os
from rlzoo.cli import main
os.chdir(sys.argv[1])
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: status = main(words)
        except SystemExit as done: status = done.code
    print(json.dumps([words, status, out.getvalue() + err.getvalue()]))
"""


def make(tree: Path, out: Path) -> None:
    out.mkdir(parents=True)
    jobs = {name: [f"recipe={recipe}", *SMALL, *words] for name, (recipe, *words) in OWN.items()}
    python(tree, ["-c", IN_ONE, str(out)], json.dumps(jobs))
    for name, (file, text) in SOURCES.items():
        (out / file).write_text(text, encoding="utf-8")
        words = ["import", str(out / file), "--out", str(out / f"import-{name}")]
        python(tree, ["-m", "rlzoo", *words])
    for name in DAMAGED:
        damage(out, shutil.copytree(out / "gae-0", out / f"damaged-{name}"), name)


def damage(out: Path, run: Path, how: str) -> None:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    if how == "cut-line":
        metrics.write_text("".join(lines)[: -len(lines[-1]) // 2], encoding="utf-8")
    elif how == "nan":
        broken = {**json.loads(lines[3]), "score/mean": float("nan")}
        metrics.write_text("".join([*lines[:3], json.dumps(broken) + "\n", *lines[4:]]))
    elif how == "cut-batch":
        for file in run.rglob("*.safetensors"):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif how == "empty":
        shutil.rmtree(run)
        run.mkdir()
    else:
        gone = {"no-recipe": ["recipe.yaml"], "no-summary": ["summary.json"],
                "no-weights": ["model"], "no-eval": ["evaluations"]}[how]  # fmt: skip
        for part in (run / name for name in gone if (run / name).exists()):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def shown(tree: Path, runs: Path, jobs: list[list[str]]) -> dict[str, tuple[Any, str]]:
    lines = python(tree, ["-c", SHOWN, str(runs)], json.dumps(jobs)).splitlines()
    return {" ".join(words): (status, text.replace(str(tree), "TREE"))
            for words, status, text in map(json.loads, lines)}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--keep", type=Path, help="where the folders are, or are to be, kept")
    parser.add_argument("--only", nargs="*", help="these verbs, no others")
    parser.add_argument("--lines", type=int, default=12, help="lines of each diff to print")
    given = parser.parse_args()
    other, different = given.other.resolve(), 0
    with tempfile.TemporaryDirectory() as place:
        kept = (given.keep or Path(place) / "kept").resolve()
        if not kept.is_dir():
            make(other, kept)
        names = sorted(folder.name for folder in kept.iterdir() if folder.is_dir())
        jobs = [[verb[0], f"./{name}", *verb[1:]] for verb in EACH for name in names]
        for words in ONCE:
            paths = {name: f"./{name}" for name in names}
            job = [paths.get(word, word) for word in words]
            jobs.append([w for word in job for w in (paths.values() if word == "ALL" else [word])])
        jobs = [job for job in jobs if not given.only or job[0] in given.only]
        jobs += [[*job, "--json"] for job in jobs]
        texts = []
        for number, tree in enumerate((other, HERE)):  # each reads a copy, since verbs may write
            copy = shutil.copytree(kept, Path(place) / f"runs-{number}" / "runs")
            texts.append(shown(tree, copy, jobs))
        before, after = texts
        for words, (status, text) in before.items():
            new_status, new = after[words]
            text, new = text.replace("runs-0", "RUNS"), new.replace("runs-1", "RUNS")
            if (status, text) == (new_status, new):
                continue
            different += 1
            print(f"rlzoo {words}: exit {status} -> {new_status}")
            lines = list(difflib.unified_diff(pretty(text), pretty(new), n=0, lineterm=""))
            print("\n".join(f"  {line[:200]}" for line in lines[2 : 2 + given.lines]))
    print(f"{len(names)} folders, {len(jobs)} views, {different} differ")
    return 1 if different else 0


def pretty(text: str) -> list[str]:
    try:
        return json.dumps(json.loads(text), indent=1, sort_keys=True).splitlines()
    except ValueError:
        return text.splitlines()


if __name__ == "__main__":
    sys.exit(main())
