"""Learning curves of small bases at games, over ten seeds: `grpo`, `gigpo` and `turn_gae`.

    python docs/studies/games.py bases            # makes the bases, 30 to 130 CPU s each
    python docs/studies/games.py runs nim gem     # those that are not there yet, 9 to 20 CPU s each
    python docs/studies/games.py table            # prints it

All in runs/games, one thread, resumable. A base imitates a scripted player and stops early: its
samples are often wrong, its most likely moves are better. Steps and learning rate (1e-3, 5e-4 or
2e-4) were chosen by the training reward of `grpo` on seed 100, which no run has; they favor it.

Predicted before the runs: (1) `grpo` raises held-out accuracy in all three games, by 0.1 or
more, with an interval above 0; greedy decoding hardly improves in the two number games, as it is
near their best. (2) `gigpo` is indistinguishable from `grpo` in all three. (3) `turn_gae`, whose
critic begins without knowledge, is below `grpo` in all three, shown in one at least.
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
from common import DOCS, table
from rlzoo_lab.stats import t_interval

OUT = DOCS.parent / "runs" / "games"
GAMES = {  # name -> task and id, options, tokens of an episode, accuracy at which its base stops
    "nim": ("textarena:Nim-v0", "task.lines=3", 200, 0.35),
    "guess": ("textarena:GuessTheNumber-v0", "task.lines=1 task.turns=4", 115, 0.37),
    "gem": ("gem:game:GuessTheNumber-v0-easy", "task.lines=1 task.turns=3", 170, 0.37),
}  # fmt: skip
CURVE = "right in training, by quarters"
RECIPES, SEEDS = ("grpo", "gigpo", "turn_gae"), 10
COMMON = (
    "rollout.prompts=16 rollout.samples=8 train.steps=12 actor.lr=2e-4 eval.samples=128 "
    "eval.every=0 run.threads=1 device=cpu"
)


def base(name):
    return OUT / f"base-{name}"


def bases():
    for name, (game, options, tokens, accuracy) in GAMES.items():
        if not base(name).exists():
            words = [game, *options.split(), f"rollout.max_new_tokens={tokens}"]
            how = f"eval.samples=512 --accuracy {accuracy} --steps 600 --lr 4e-3".split()
            rlzoo.verb(["model", "base", *words, *how, "--out", str(base(name))])


def runs(names, recipes):
    zoo = rlzoo.load_zoo()
    for recipe, name, seed in product(recipes, names, range(SEEDS)):
        folder = OUT / name / f"{recipe}-{seed}"
        if (folder / "summary.json").exists():
            continue
        game, options, tokens, _ = GAMES[name]
        task, _, game = game.partition(":")
        words = [f"task={task}", f"task.games=[{game}]", *options.split(), *COMMON.split()]
        words += [f"rollout.max_new_tokens={tokens}", f"model.path={base(name)}", f"seed={seed}"]
        began = time.process_time()
        rlzoo.run(recipe, [*words, f"run.dir={folder}", "run.overwrite=true"], zoo=zoo)
        print(name, recipe, seed, f"{time.process_time() - began:.1f} CPU s", flush=True)


def interval(values):
    """Mean and Student's 95 % interval over seeds."""
    low, high = t_interval(values)
    return f"{statistics.mean(values):+.2f} [{low:+.2f}, {high:+.2f}]"


def ends(folder):
    """Held-out (accuracy, greedy accuracy) of a run, before and after."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seen = [line for line in map(json.loads, lines) if "eval/greedy" in line]
    return [(line["eval/accuracy"], line["eval/greedy"]) for line in (seen[0], seen[-1])]


def curve(folder):
    """The share of right training episodes in each quarter of a run's steps."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    right = [line["response/right"] for line in map(json.loads, lines) if "response/right" in line]
    return [
        statistics.mean(right[n * len(right) // 4 : (n + 1) * len(right) // 4]) for n in range(4)
    ]


def results():
    """A table and a verdict for each game, of the seeds that all of its recipes have."""
    parts = []
    for name, (game, *_) in GAMES.items():
        runs = {r: [OUT / name / f"{r}-{seed}" for seed in range(SEEDS)] for r in RECIPES}
        runs = {r: fs for r, fs in runs.items() if all((f / "summary.json").exists() for f in fs)}
        if not runs:
            continue
        lines = []
        for recipe, folders in runs.items():
            before, after = zip(*map(ends, folders), strict=True)
            cells = [f"`{recipe}`"]
            for kind in range(2):
                pairs = [(b[kind], a[kind]) for b, a in zip(before, after, strict=True)]
                cells.append(
                    "{:.2f}, {:.2f}".format(*map(statistics.mean, zip(*pairs, strict=True)))
                )
                cells.append(interval([a - b for b, a in pairs]))
            quarters = zip(*map(curve, folders), strict=True)
            lines.append([*cells, " ".join(f"{statistics.mean(q):.2f}" for q in quarters)])
        said = ""
        if len(runs) > 1:
            every = [folder for folders in runs.values() for folder in folders]
            found = rlzoo.compare(every, reference="grpo")
            said = re.sub(r"; \d+ seeds could have detected [^)]*", "", found["verdict"][0])
            said = re.sub(r"(?<!\d)\.(?=\d)", "0.", said)
        title = f"`{game.partition(':')[2]}`, {SEEDS} seeds. {said}".strip()
        head = [
            "recipe",
            "sampled before, after",
            "change",
            "greedy before, after",
            "change",
            CURVE,
        ]
        parts.append(f"{title}\n\n{table(head, lines)}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["bases", "runs", "table"])
    parser.add_argument("games", nargs="*", default=list(GAMES))
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    given = parser.parse_args()
    if given.what == "bases":
        bases()
    elif given.what == "runs":
        runs(given.games, given.recipes)
    else:
        print(results())
