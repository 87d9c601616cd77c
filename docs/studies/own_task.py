"""Walks docs/own-task.md: its commands, timed, and its claim with other seeds.

python docs/studies/own_task.py [--dir FOLDER] [--seeds N]
"""

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "own-task.md"


def commands() -> list[list[str]]:
    """The `rlzoo` lines of the page, as lists of words; those of the pairs are left out."""
    text = PAGE.read_text(encoding="utf-8")
    lines = [
        line
        for code in re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for line in code.replace("\\\n", " ").splitlines()
    ]
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in found if words[0] == "rlzoo" and "pairs.jsonl" not in words]


def call(words: list[str], folder: Path) -> tuple[float, float, str]:
    """(wall seconds, CPU seconds, what it printed) of one command in a process of its own."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "RLZOO_PLUGINS": "sort3.py", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "rlzoo", *words],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"rlzoo {shlex.join(words)}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu, done.stdout


def walk(folder: Path) -> None:
    """Every command of the page, one after another."""
    total = [0.0, 0.0]
    for words in commands():
        wall, cpu, said = call(words, folder)
        total[0] += wall
        total[1] += cpu
        print(f"$ rlzoo {shlex.join(words)}\n{said}({wall:.0f} s, {cpu:.0f} s of CPU)\n")
    print(f"all: {total[0]:.0f} s, {total[1]:.0f} s of CPU\n")


def seeds(folder: Path, n: int) -> None:
    """Warm start and training of the page again, with seeds 0 to n - 1, in one process."""
    import rlzoo
    from rlzoo.cli import main

    os.chdir(folder)
    os.environ["RLZOO_PLUGINS"] = "sort3.py"
    zoo = rlzoo.load_zoo()
    base = next(words for words in commands() if words[:2] == ["model", "base"])
    train = [words for words in commands() if words[0] == "run"][-1]
    own = [w for w in train[1:] if not w.startswith(("recipe=", "model.path=", "run.dir="))]
    recipe = train[1].removeprefix("recipe=")
    rows = []
    for seed in range(n):
        start = f"start-{seed}"
        words = [start if w == "start" else w for w in base]
        if main([*words, "--seed", str(seed)]):
            raise SystemExit(f"seed {seed}: the warm start fell short")
        made = json.loads((Path(start) / "report.json").read_text(encoding="utf-8"))
        words = [*own, f"model.path={start}", f"seed={seed}", f"run.dir=runs/seed-{seed}"]
        summary = rlzoo.run(recipe, words, zoo=zoo).summary
        rows.append((made["accuracy"], summary["eval_before"], summary["eval_after"]))
        print(f"seed {seed}: warm start {rows[-1][0]:.3f}, then {rows[-1][2]:.3f}", flush=True)
    after = sorted(row[2] for row in rows)
    warm = sorted(row[0] for row in rows)
    print(
        f"{n} seeds: warm start {warm[0]:.3f} to {warm[-1]:.3f}, after training {after[0]:.3f} to "
        f"{after[-1]:.3f}, mean {sum(after) / n:.3f}; above .8 in {sum(a > 0.8 for a in after)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("own-task"))
    parser.add_argument("--seeds", type=int, default=0, help="only the claim, with N seeds")
    asked = parser.parse_args()
    asked.dir.mkdir(parents=True)
    shutil.copy(DOCS / "examples" / "sort3.py", asked.dir)
    if asked.seeds:
        seeds(asked.dir, asked.seeds)
    else:
        walk(asked.dir)
