"""Hi-lo through `rlzoo serve` and in this process, ten seeds each: are the curves the same?

    python docs/studies/serving.py runs [ARM ...]   # those that are not there yet, 15 to 60 CPU s
    python docs/studies/serving.py table            # prints it

All in runs/serving. The agent is agent.py, a process of its own with 64 threads, which plays by its
own rules and posts its own reward. In a pair the seed is the same, so prompts, their rows, and the
noise of each (row, position) are the same, and so are recipe, length limit and evaluation.

Written before the runs. Margin of equivalence: 0.02, for the held-out accuracy at the end and for
the training reward averaged over the steps; two ways are equivalent if the 95 % interval of the
paired difference is within it. Predicted: (1) with `rollout.old_log_probs=recomputed`, as a served
policy's always are, both ways end with the same weights, to the byte, in ten pairs of ten; a
rounding error that flips a token may cost one. (2) With the default, whose log-probs are rounded
otherwise, all pairs end within 0.01.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from hashlib import sha256
from itertools import product

os.environ.setdefault("OMP_NUM_THREADS", "1")
from common import DOCS, table
from rlzoo_lab.stats import t_interval

OUT = DOCS.parent / "runs" / "serving"
SEEDS, PORT, AGENTS, MARGIN = 10, 8023, 64, 0.02
COMMON = (
    "model=turns task=hi_lo train.steps=14 eval.every=0 eval.samples=512 checkpoint.every=0 "
    "run.threads=1 device=cpu run.overwrite=true"
)
ARMS = {  # name -> its words
    "serve": "",
    "default": "",
    "recomputed": "rollout.old_log_probs=recomputed",
}
NAMES = {
    "serve": "`rlzoo serve`",
    "default": "`rlzoo run`",
    "recomputed": "with `rollout.old_log_probs=recomputed`",
}


def runs(arms):
    os.environ.setdefault("RLZOO_TOKEN", "the-token-of-this-study")
    for seed, arm in product(range(SEEDS), arms):
        folder = OUT / f"{arm}-{seed}"
        if (folder / "summary.json").exists():
            continue
        words = [*COMMON.split(), *ARMS[arm].split(), f"seed={seed}", f"run.dir={folder}"]
        before = spent()
        if arm == "serve":
            agent = subprocess.Popen(
                [sys.executable, str(DOCS / "studies" / "agent.py"), f"http://127.0.0.1:{PORT}",
                 "--agents", str(AGENTS), "--patience", "600"]
            )  # fmt: skip
            try:
                command(["serve", "--port", str(PORT), "grpo", *words])
            finally:
                agent.kill()
                agent.wait()
        else:
            command(["run", "grpo", *words])
        print(arm, seed, f"{spent() - before:.1f} CPU s", flush=True)


def curve(folder):
    """The training reward of each step."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["reward/mean"] for line in lines if "reward/mean" in line]


def results():
    """The curves, and the differences between the ways, of the seeds that all ways have."""
    seeds = [s for s in range(SEEDS) if all((OUT / f"{a}-{s}/summary.json").exists() for a in ARMS)]
    curves = {arm: [curve(OUT / f"{arm}-{s}") for s in seeds] for arm in ARMS}
    ends = {arm: [end(OUT / f"{arm}-{s}") for s in seeds] for arm in ARMS}
    steps = range(len(curves["serve"][0]))
    rows = [
        [NAMES[arm], *(mean([c[t] for c in curves[arm]]) for t in steps), mean(ends[arm])]
        for arm in ARMS
    ]
    first = table([f"{len(seeds)} seeds", *(f"{t + 1}" for t in steps), "held out"], rows)
    rows = []
    for arm in list(ARMS)[1:]:
        pairs = list(zip(curves["serve"], curves[arm], strict=True))
        gaps = [statistics.mean(x) - statistics.mean(y) for x, y in pairs]
        steps = [
            statistics.mean(x) - statistics.mean(y)
            for x, y in zip(*(zip(*curves[a], strict=True) for a in ("serve", arm)), strict=True)
        ]
        held = [x - y for x, y in zip(ends["serve"], ends[arm], strict=True)]
        equal = sum(weights(f"serve-{s}") == weights(f"{arm}-{s}") for s in seeds)
        rows.append(
            [NAMES[arm], str(equal), f"{max(map(abs, steps)):.4f}", *map(margin, (gaps, held))]
        )
    head = ["`rlzoo serve` minus", "equal weights", "largest gap of means at a step"]
    return first + "\n\n" + table([*head, "mean reward", "held out"], rows)


def end(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))["eval_after"]


def weights(name):
    return sha256((OUT / name / "model" / "model.safetensors").read_bytes()).digest()


def mean(values):
    """Mean and half of Student's 95 % interval."""
    low, high = t_interval(values)
    return f"{statistics.mean(values):.2f}±{(high - low) / 2:.2f}"


def margin(gaps):
    """A mean of paired differences, its 95 % interval, and whether this is within the margin."""
    low, high = t_interval(gaps) if any(gaps) else (0.0, 0.0)
    found = f"{statistics.mean(gaps):+.4f} [{low:+.4f}, {high:+.4f}]"
    return found + (" equivalent" if -MARGIN < low <= high < MARGIN else " not shown")


def command(words):
    subprocess.run([sys.executable, "-m", "rlzoo", *words], check=True, stdout=subprocess.DEVNULL)


def spent():
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["runs", "table"])
    parser.add_argument("arms", nargs="*", default=list(ARMS))
    given = parser.parse_args()
    if given.what == "runs":
        runs(given.arms)
    else:
        print(results())
