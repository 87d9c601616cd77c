"""Learning curves of small bases at games, over ten seeds: `grpo`, `gigpo` and `turn_gae`.

    python docs/studies/games.py bases            # makes the bases, some CPU minutes each
    python docs/studies/games.py runs --seeds 10  # those that are not there yet, 5 CPU s each
    python docs/studies/games.py table            # into docs/environments.md

All in runs/games, one thread. The learning rate is that of a pilot: at 2e-3 the first
step of GEM's game undid what the base had learned.
"""

import argparse
import json
import os
import re
import statistics
import time
from itertools import product

os.environ.setdefault("OMP_NUM_THREADS", "1")
import rlzoo
from common import DOCS, put, table
from rlzoo_lab.stats import t_interval

OUT = DOCS.parent / "runs" / "games"
GAMES = {  # name -> task and id, options, tokens of an episode, steps, how its base is made
    "gem": ("gem:game:GuessTheNumber-v0-easy", "task.lines=1", 330, 10, "--like turns"),
    "guess": (
        "textarena:GuessTheNumber-v0", "task.lines=1 task.turns=4", 140, 16,
        "--right 0.25 --accuracy 0.15 --steps 250 --lr 4e-3",
    ),
    "nim": (
        "textarena:Nim-v0", "task.lines=3", 260, 10,
        "--right 0.25 --accuracy 0.15 --steps 250 --lr 4e-3",
    ),
}  # fmt: skip
RECIPES, SEEDS = ("grpo", "gigpo", "turn_gae"), 10
KINDS = ("accuracy", "score")
COMMON = (
    "rollout.prompts=8 rollout.samples=4 train.minibatches=1 actor.lr=1e-3 eval.samples=64 "
    "eval.every=0 run.threads=1 device=cpu"
)


def base(name):
    return OUT / f"base-{name}"


def bases():
    """Mostly demonstrations of chance, so that a base has the form and plays badly."""
    for name, (game, options, tokens, _, how) in GAMES.items():
        if not base(name).exists():
            words = [game, *options.split(), f"rollout.max_new_tokens={tokens}", *how.split()]
            rlzoo.verb(["base", *words, "--out", str(base(name))])


def runs(seeds):
    zoo = rlzoo.load_zoo()
    for name, (game, options, tokens, steps, _) in GAMES.items():
        task, _, game = game.partition(":")
        same = [f"task={task}", f"task.games=[{game}]", *options.split(), *COMMON.split()]
        same += [f"rollout.max_new_tokens={tokens}", f"train.steps={steps}"]
        for seed, recipe in product(range(seeds), RECIPES):
            folder = OUT / name / f"{recipe}-{seed}"
            if not base(name).exists() or (folder / "summary.json").exists():
                continue
            words = [*same, f"model.path={base(name)}", f"seed={seed}", f"run.dir={folder}"]
            began = time.process_time()
            rlzoo.run(recipe, [*words, "run.overwrite=true"], zoo=zoo)
            print(name, recipe, seed, f"{time.process_time() - began:.1f} CPU s", flush=True)


def interval(values):
    """Mean and Student's 95 % interval over seeds."""
    low, high = t_interval(values)
    return f"{statistics.mean(values):+.2f} [{low:+.2f}, {high:+.2f}]"


def ends(folder):
    """Held-out (accuracy, score) of a run, before and after: the score has partial credit."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seen = [line for line in map(json.loads, lines) if "eval/score" in line]
    return [(line["eval/accuracy"], line["eval/score"]) for line in (seen[0], seen[-1])]


def results():
    """A table and a verdict for each game, of the seeds that all recipes have."""
    parts = []
    for name, (game, *_) in GAMES.items():
        runs = {r: [OUT / name / f"{r}-{seed}" for seed in range(SEEDS)] for r in RECIPES}
        rows = zip(*runs.values(), strict=True)
        done = [n for n, row in enumerate(rows) if all((f / "summary.json").exists() for f in row)]
        if len(done) < 2:
            continue
        lines = []
        for recipe, folders in runs.items():
            before, after = zip(*(ends(folders[seed]) for seed in done), strict=True)
            gains = [
                [b[i] - a[i] for a, b in zip(before, after, strict=True)] for i in range(len(KINDS))
            ]
            means = (
                [statistics.mean(x[i] for x in when) for when in (before, after)]
                for i in range(len(KINDS))
            )
            cells = ("{:.2f}, {:.2f}".format(*pair) for pair in means)
            both = zip(cells, map(interval, gains), strict=True)
            lines.append([f"`{recipe}`", *(cell for pair in both for cell in pair)])
        verdict = rlzoo.compare([runs[r][seed] for r in RECIPES for seed in done])["verdict"][0]
        short = re.sub(r" \([^)]*\)", "", verdict)  # the numbers are those of the table
        head = ["recipe", *(x for kind in KINDS for x in (f"{kind} before, after", "change"))]
        title = f"`{game.partition(':')[2]}`, {len(done)} seeds. Accuracy by `compare`: {short}"
        parts.append(f"{title}\n\n{table(head, lines)}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["bases", "runs", "table"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    if given.what == "bases":
        bases()
    elif given.what == "runs":
        runs(given.seeds)
    else:
        put(DOCS / "environments.md", "games", results())
