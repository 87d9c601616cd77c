"""Learning curves of three games that small bases play badly: gigpo and turn_gae against grpo.

    python docs/studies/games.py bases            # makes the bases, about two CPU minutes each
    python docs/studies/games.py runs --seeds 10  # those that are not there yet
    python docs/studies/games.py table

All in runs/games. One thread.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

import rlzoo

OUT = Path("runs/games")
GAMES = {  # name -> its task, and how long an episode can be in tokens
    "guess": ("textarena:GuessTheNumber-v0", ["task.lines=1", "task.turns=4"], 140),
    "nim": ("textarena:Nim-v0", ["task.lines=3"], 260),
    "gem": ("gem:game:GuessTheNumber-v0-easy", ["task.lines=1"], 320),
}
RECIPES = ("grpo", "gigpo", "turn_gae")
STEPS = 12


def words_of(name):
    """Words that name the game and its length in a recipe."""
    game, options, tokens = GAMES[name]
    task, _, game = game.partition(":")
    return [f"task={task}", f"task.games=[{game}]", *options, f"rollout.max_new_tokens={tokens}"]


def bases():
    """Mostly demonstrations of chance, so that a base has the form and plays badly."""
    for name, (game, options, tokens) in GAMES.items():
        if not (OUT / f"base-{name}").exists():
            words = [game, *options, f"rollout.max_new_tokens={tokens}", "eval.samples=64"]
            extra = ["--right", "0.25", "--accuracy", "0.15", "--steps", "250", "--lr", "4e-3"]
            out = ["--out", str(OUT / f"base-{name}")]
            rlzoo.verb(["base", *words, *extra, *out])
            print("made", name, flush=True)


def runs(seeds):
    for seed in range(seeds):
        for name in GAMES:
            for recipe in RECIPES:
                folder = OUT / name / f"{recipe}-{seed}"
                if folder.exists() or not (OUT / f"base-{name}").exists():
                    continue
                words = [*words_of(name), f"model.path={OUT / f'base-{name}'}", f"seed={seed}"]
                words += ["rollout.prompts=8", "rollout.samples=4", f"train.steps={STEPS}"]
                words += ["actor.lr=2e-3", "eval.samples=64", f"eval.every={STEPS // 2}"]
                began = time.process_time()
                rlzoo.run(recipe, [*words, "run.threads=1", f"run.dir={folder}", "device=cpu"])
                print(name, recipe, seed, f"{time.process_time() - began:.1f} CPU s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["bases", "runs", "table"])
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "bases":
        bases()
    elif given.what == "runs":
        runs(given.seeds)
    else:
        for name in GAMES:
            sys.stdout.write(str(rlzoo.compare(*sorted((OUT / name).iterdir()))))
