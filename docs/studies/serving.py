"""Hi-lo through `rlzoo serve` and in this process, ten seeds each: are the curves the same?

    python docs/studies/serving.py runs [ARM ...]   # those that are not there yet, 15 to 60 CPU s
    python docs/studies/serving.py table            # into docs/environments.md

All in runs/serving. The agent is agent.py, a process of its own with 64 threads, which plays by its
own rules and posts its own reward. In a pair the seed is the same, so prompts, their rows, and the
noise of each (row, position) are the same, and so are recipe, length limit and evaluation.

Written before the runs. Margin of equivalence: 0.02, for the held-out accuracy at the end and for
the training reward averaged over the steps; two ways are equivalent if the 95 % interval of the
paired difference is within it. Predicted: (1) with
`rollout.old_log_probs=recomputed`, as a served policy's always are, both ways end with the same
weights, to the byte, in ten pairs of ten; a rounding error that flips a token may cost one. (2) With
the default, whose log-probs are rounded otherwise, all pairs end within 0.01.
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
from common import DOCS, put, table
from rlzoo_lab.stats import critical, t_interval

OUT = DOCS.parent / "runs" / "serving"
SEEDS, PORT, AGENTS = 10, 8023, 64
COMMON = (
    "model=turns task=hi_lo train.steps=14 eval.every=0 eval.samples=512 checkpoint.every=0 "
    "run.threads=1 device=cpu run.overwrite=true"
)
ARMS = {  # name -> its words
    "serve": "",
    "default": "",
    "recomputed": "rollout.old_log_probs=recomputed",
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
    runs(given.arms)
