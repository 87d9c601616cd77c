"""Two checkouts make the same runs: `python tests/benchmarks/same_metrics.py OTHER_CHECKOUT`.

For a change that moves code and should move no number. Each run is made by both checkouts with
the same words, and every line of metrics.jsonl must be equal, figures of time apart. The other
checkout runs in this interpreter's environment, by PYTHONPATH: nothing is installed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
UNTOLD = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
SMALL = ["rollout.prompts=4", "train.steps=2", "eval.samples=16", "run.threads=1", "device=cpu"]
RANKS = ["model=nano", "task=key_door", "rollout.samples=4", "checkpoint.every=1"]
# Name: (processes, words of `rlzoo run`).
RUNS: dict[str, tuple[int, list[str]]] = {
    "ppo_gae": (1, ["recipe=ppo_gae"]),
    "grpo": (1, ["recipe=grpo"]),
    "dapo": (1, ["recipe=dapo"]),
    "vineppo": (1, ["recipe=vineppo"]),
    "gigpo": (1, ["recipe=gigpo", "task=hi_lo", "model=turns"]),
    "shared": (1, ["recipe=ppo_gae", "critic.trunk=shared", "train.minibatches=1"]),
    "kept": (1, ["recipe=ppo_gae", "train.epochs=1", "train.minibatches=1"]),
    "coupled": (1, ["recipe=grpo", "policy_loss=tpo", "train.microbatch=3"]),
    "replicated": (2, ["recipe=ppo_gae", *RANKS]),
    "sharded": (2, ["recipe=ppo_gae", *RANKS, "parallel.strategy=shard"]),
}


def start(tree: Path, processes: int, words: list[str]) -> None:
    code = [sys.executable, "-m", "rlzoo", *words]
    if processes > 1:
        code[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    path = os.pathsep.join([str(tree), str(tree / "plugins")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(code, env=environment, capture_output=True, text=True, cwd=tree)
    if done.returncode:
        sys.exit(f"{tree}: {' '.join(words)}\n{done.stderr}")


def make(tree: Path, out: Path, names: list[str]) -> None:
    for name in names:
        processes, words = RUNS[name]
        start(tree, processes, ["run", *words, *SMALL, f"run.dir={out / name}"])
    if "ppo_gae" in names:  # as if killed after its first step
        words = [*RUNS["ppo_gae"][1], *SMALL, "checkpoint.every=1", f"run.dir={out / 'resumed'}"]
        start(tree, 1, ["run", *words])
        (out / "resumed" / "summary.json").unlink()
        for late in (out / "resumed" / "checkpoints").glob("step-*2"):
            late.rename(late.with_name(f"late-{late.name}"))
        start(tree, 1, ["resume", str(out / "resumed")])


def metrics(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(UNTOLD)} for line in lines
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--keep", type=Path, help="where the other's runs are, or are to be, kept")
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    given = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as place:
        theirs = given.keep or Path(place) / "other"
        missing = [n for n in given.only if not (theirs / n / "summary.json").exists()]
        make(given.other.resolve(), theirs, missing)
        make(HERE, Path(place) / "here", given.only)
        for name in [*given.only, *(["resumed"] if "ppo_gae" in given.only else [])]:
            one, other = metrics(Path(place) / "here" / name), metrics(theirs / name)
            keys = sum(map(len, one))
            if one == other:
                print(f"{name}: identical, {len(one)} lines, {keys} numbers", flush=True)
                continue
            different += 1
            for i, (a, b) in enumerate(zip(one, other, strict=False)):
                for k in sorted(a.keys() | b.keys()):
                    if a.get(k) != b.get(k):
                        print(f"{name}: line {i}: {k}: {a.get(k)} here, {b.get(k)} there")
            if len(one) != len(other):
                print(f"{name}: {len(one)} lines here, {len(other)} there")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
