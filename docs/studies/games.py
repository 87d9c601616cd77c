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
RECIPES = ("grpo", "gigpo", "turn_gae")
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


def interval(values, form="{:.3f} [{:.3f}, {:.3f}]"):
    """Mean and Student's 95 % interval over seeds."""
    found = t_interval(values)
    return form.format(statistics.mean(values), found.low, found.high)


def results():
    """Each game's rows and its verdict, of the seeds that all recipes have."""
    lines, verdicts = [], []
    for name, (game, *_) in GAMES.items():
        done = {r: [OUT / name / f"{r}-{s}" / "summary.json" for s in range(10)] for r in RECIPES}
        every = [s for s in range(10) if all(done[r][s].exists() for r in RECIPES)]
        if len(every) < 2:
            continue
        for recipe in RECIPES:
            found = [json.loads(done[recipe][s].read_text()) for s in every]
            before, after = ([row[f"eval_{x}"] for row in found] for x in ("before", "after"))
            gained = [b - a for a, b in zip(before, after, strict=True)]
            first = f"`{game.partition(':')[2]}`, {len(every)} seeds"
            cells = [first if recipe == RECIPES[0] else "", f"`{recipe}`"]
            change = interval(gained, "{:+.3f} [{:+.3f}, {:+.3f}]")
            lines.append([*cells, f"{statistics.mean(before):.3f}", interval(after), change])
        folders = [done[recipe][s].parent for recipe in RECIPES for s in every]
        verdicts.append(f"`{game.partition(':')[2]}`: {rlzoo.compare(folders)['verdict'][0]}")
    head = ["game", "recipe", "before", "after", "change"]
    return table(head, lines) + "\n\n`rlzoo compare` finds: " + " ".join(verdicts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["bases", "runs", "table"])
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    if given.what == "bases":
        bases()
    elif given.what == "runs":
        runs(given.seeds)
    else:
        put(DOCS / "environments.md", "games", results())
