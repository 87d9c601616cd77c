"""Two checkouts make the same runs: `python tests/benchmarks/same_runs.py OTHER_CHECKOUT`.

For a change that moves code and should move no number. Both checkouts make each run with the same
words: every recipe with two seeds, and runs of two processes, resumed, with LoRA, in conversation.
Every line of metrics.jsonl must be equal, figures of time and memory apart, and every tensor of
weights, batches and evaluations equal to the byte. Then both read the runs of the other checkout by
each verb that studies runs, and print the same JSON. The other checkout runs in this interpreter's
environment, by PYTHONPATH: nothing is installed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parents[2]
OF_THE_MACHINE = ("timing_s/", "perf/seconds", "perf/tokens_per_second", "perf/peak", "perf/memory")
SMALL = ["rollout.prompts=4", "train.steps=2", "eval.samples=16", "run.threads=1", "device=cpu",
         "checkpoint.every=1", "run.save_batches=1"]  # fmt: skip
RANKS = ["model=nano", "task=key_door", "rollout.samples=4"]
# Name: (processes, words of `rlzoo run`).
MORE: dict[str, tuple[int, list[str]]] = {
    "gigpo": (1, ["recipe=gigpo", "task=hi_lo", "model=turns"]),
    "shared": (1, ["recipe=ppo_gae", "critic.trunk=shared", "train.minibatches=1"]),
    "kept": (1, ["recipe=ppo_gae", "train.epochs=1", "train.minibatches=1"]),
    "coupled": (1, ["recipe=grpo", "policy_loss=tpo", "train.microbatch=3"]),
    "lora": (1, ["recipe=grpo", "model.lora.rank=4"]),
    "stale": (1, ["recipe=grpo", "rollout.staleness=1", "rollout.temperature=0.8"]),
    "replicated": (2, ["recipe=ppo_gae", *RANKS]),
    "sharded": (2, ["recipe=ppo_gae", *RANKS, "parallel.strategy=shard"]),
}
VERBS = [["doctor", "RUN"], ["compare", "RUN", "OTHER", "--force"], ["trace", "RUN"],
         ["diagnose", "RUN"], ["eval", "RUN", "--prompts", "16"]]  # fmt: skip
# In one process, since importing torch takes longer than such a run.
IN_ONE = """
import sys, json, warnings
import rlzoo
out, jobs = sys.argv[1], json.load(sys.stdin)
warnings.simplefilter("ignore")
for name, words in jobs.items():
    recipe, *more = words
    try:
        rlzoo.run(recipe.removeprefix("recipe="), [*more, f"run.dir={out}/{name}"], display=False)
    except rlzoo.RlzooError as error:
        with open(f"{out}/{name}.refused", "w") as file:
            file.write(str(error).replace(out, ""))
"""
AS_JSON = """
import sys, json, io, contextlib
from rlzoo.cli import main
for words in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try: status = main([*words, "--json"])
        except SystemExit as done: status = done.code
    print(json.dumps([words, status, out.getvalue()]))
"""


def python(tree: Path, code: list[str], stdin: str | None = None) -> str:
    path = os.pathsep.join([str(tree), str(tree / "plugins")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, *code], env=environment, capture_output=True, text=True, cwd=tree,
        input=stdin,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{tree}: {' '.join(code)[:200]}\n{done.stderr[-2000:]}")
    return done.stdout


def make(tree: Path, out: Path, recipes: list[str], more: dict[str, tuple[int, list[str]]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    alone = {f"{r}-{seed}": [f"recipe={r}", f"seed={seed}", *SMALL] for r in recipes
             for seed in (0, 1)}  # fmt: skip
    alone |= {name: [*words, *SMALL] for name, (n, words) in more.items() if n == 1}
    python(tree, ["-c", IN_ONE, str(out)], json.dumps(alone))
    for name, (n, words) in more.items():
        if n > 1:
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
            words = ["run", *words, *SMALL, f"run.dir={out / name}"]
            python(tree, [*launch, "-m", "rlzoo", *words])
    resumed = out / "resumed"  # as if killed after its first step
    python(tree, ["-m", "rlzoo", "run", "recipe=ppo_gae", *SMALL, f"run.dir={resumed}"])
    (resumed / "summary.json").unlink()
    for late in (resumed / "checkpoints").glob("step-*2"):
        late.rename(late.with_name(f"late-{late.name}"))
    python(tree, ["-m", "rlzoo", "resume", str(resumed)])


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ours = lambda line: {k: v for k, v in line.items() if not k.startswith(OF_THE_MACHINE)}  # noqa: E731
    return [ours(json.loads(line)) for line in lines]


def weights(folder: Path) -> dict[str, str]:
    """Digest of every tensor of checkpoints, models, batches and evaluations, by file and name."""
    return {
        f"{file.relative_to(folder)}:{name}": hashlib.sha256(
            x.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        ).hexdigest()
        for file in sorted(folder.rglob("*.safetensors"))
        for name, x in load_file(file).items()
        if x.numel()
    }


def outcome(folder: Path) -> str:
    file = folder.with_name(f"{folder.name}.refused")
    return file.read_text() if file.exists() else "made" if folder.is_dir() else "missing"


def differences(here: Path, there: Path) -> list[str]:
    """What differs between two runs; metrics and tensors that are new here are no difference."""
    if not here.is_dir() or not there.is_dir():
        one, other = outcome(here), outcome(there)
        return [] if one == other != "missing" else [f"{one!r} here, {other!r} there"]
    one, other = metrics(here), metrics(there)
    found = [
        f"line {i}: {k}: {a.get(k)} here, {b.get(k)} there"
        for i, (a, b) in enumerate(zip(one, other, strict=False))
        for k in sorted(a.keys() & b.keys())
        if a[k] != b[k]
    ]
    lost = {k for line in other for k in line} - {k for line in one for k in line}
    found += [f"no metric {name}" for name in sorted(lost)]
    if len(one) != len(other):
        found.append(f"{len(one)} lines here, {len(other)} there")
    ours, theirs = weights(here), weights(there)
    return found + [f"{name} differs" for name in sorted(theirs) if ours.get(name) != theirs[name]]


def documents(tree: Path, runs: list[Path]) -> dict[str, Any]:
    """What each verb prints of runs as JSON, by its words."""
    jobs = [
        [str(run) if w == "RUN" else str(runs[0]) if w == "OTHER" else w for w in verb]
        for run in runs
        for verb in VERBS
    ]
    lines = python(tree, ["-c", AS_JSON], json.dumps(jobs)).splitlines()
    return {" ".join(words): (status, text) for words, status, text in map(json.loads, lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--keep", type=Path, help="where the other's runs are, or are to be, kept")
    parser.add_argument("--only", nargs="*", help="these recipes and runs of `MORE`, no others")
    parser.add_argument("--verbs", type=int, default=4, help="runs that every verb reads")
    given = parser.parse_args()
    recipes = sorted(p.stem for p in (HERE / "configs" / "recipes").glob("*.yaml"))
    more = MORE
    if given.only:
        recipes = [name for name in recipes if name in given.only and name not in MORE]
        more = {name: run for name, run in MORE.items() if name in given.only}
    different = 0
    with tempfile.TemporaryDirectory() as place:
        theirs, ours = given.keep or Path(place) / "other", Path(place) / "here"
        if not theirs.is_dir():
            make(given.other.resolve(), theirs, recipes, more)
        make(HERE, ours, recipes, more)
        names = [*(f"{r}-{seed}" for r in recipes for seed in (0, 1)), *more, "resumed"]
        for name in names:
            found = differences(ours / name, theirs / name)
            different += bool(found)
            print(f"{name}: {'; '.join(found[:5]) or 'identical'}", flush=True)
        runs = [theirs / name for name in names if (theirs / name).is_dir()][: given.verbs]
        here, there = documents(HERE, runs), documents(given.other.resolve(), runs)
        for words in here:
            same = here[words] == there.get(words)
            different += not same
            print(f"rlzoo {words} --json: {'identical' if same else 'differs'}", flush=True)
    print(f"{len(names)} runs, {different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
