"""Games that work as tasks without a network, and how equal and quick their replays are.

    python docs/studies/environments.py ids textarena gem --out docs/assets/offline-games.txt
    python docs/studies/environments.py replays --games 1000

`ids` makes a task of the first id of each game in a process of its own, in 20 s of CPU.
`replays` runs `rlzoo check`, plays random games of up to 100 turns, with invalid moves, and
replays each from its seed.
"""

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import sys
import time
import warnings
from itertools import permutations

import rlzoo
from rlzoo_zoo.tasks.episodes import isolated

LIMIT, WAIT = 20, 120  # seconds of CPU and of time for an id
TURNS, ABREAST, TRIES = 100, 8, 6  # of a random game; games at a time; moves tried on a copy
ODD = ["?!", "x" * 50, "[-1]", "[99 99 99]", "[nan]", "\\boxed{", "]][[", "\N{SNOWMAN}", "1" * 400]
FORMS = {  # well-formed moves of games that show none in brackets
    "FrozenLake-v0": [f"[{x}]" for x in ("up", "down", "left", "right")],
    "GuessTheNumber-v0": [f"[{n}]" for n in range(1, 21)],
    "LightsOut-v0": [f"[{a} {b}]" for a in range(5) for b in range(5)],
    "PigDice-v0": ["[roll]", "[hold]"],
    "Blackjack-v0": ["[Hit]", "[Stand]"],
    "TowerOfHanoi-v0": [f"[{a} {b}]" for a, b in permutations("ABC", 2)],
    "Mastermind-v0": [f"[{' '.join(x)}]" for x in permutations("123456", 4)],
    "game:TowerofHanoi-v0-easy": [f"\\boxed{{{a} {b}}}" for a, b in permutations("ABC", 2)],
}
TEXTARENA = (
    "GuessTheNumber-v0", "FrozenLake-v0", "LightsOut-v0", "PigDice-v0", "Blackjack-v0",
    "TowerOfHanoi-v0", "Mastermind-v0", "Nim-v0", "TicTacToe-v0", "KuhnPoker-v0",
)  # fmt: skip
GEM = (
    "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:Minesweeper-v0-easy",
    "game:TowerofHanoi-v0-easy", "game:Game2048-v0-easy",
)  # fmt: skip


def task_class(name):
    if name == "textarena":
        from rlzoo_zoo.tasks.textarena import Textarena as found
    else:
        from rlzoo_zoo.tasks.gem import Gem as found
    return found


def registered(name):
    """The first id of each game: others differ in size, level or wrappers."""
    if name == "textarena":
        import textarena  # noqa: F401
        from textarena.envs.registration import ENV_REGISTRY
    else:
        import gem  # noqa: F401
        from gem.envs.registration import ENV_REGISTRY
    first: dict[str, str] = {}
    for game in ENV_REGISTRY:
        if name == "gem" and not game.startswith("game:"):
            continue  # reasoning-gym has a task of its own; the rest needs data from a hub
        first.setdefault(game.partition("-v0")[0], game)
    return list(first.values())


def works(name, game):
    """Whether a task of this game can be made; in a fork, for some hang or print."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        signal.alarm(WAIT)
        socket.setdefaulttimeout(1)  # a download that hangs
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        status = 1
        try:
            warnings.simplefilter("error", UserWarning)  # it fails at a random move
            task_class(name)(games=[game])
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def ids(names, out):
    with open(out, "w") if out else contextlib.nullcontext(sys.stdout) as file:
        for name in names:
            every = registered(name)
            task_class(name)  # imported once, before the forks
            found = 0
            for game in every:
                if works(name, game):
                    found += 1
                    print(name, game, file=file, flush=True)
            print(f"{name}: {found} of {len(every)} games work offline", file=sys.stderr)


def replays(names, games, seconds):
    """A row for each of ten TextArena and five GEM ids."""
    print("| id | checks failed | games | turns | longest | replies that differ | ms per step |")
    print("|---|---|---|---|---|---|---|")
    warnings.simplefilter("ignore")
    for name, every in (("textarena", TEXTARENA), ("gem", GEM)):
        for game in every:
            if name not in names and game not in names:
                continue
            failed = [r for r in rlzoo.check(name, [f"games=[{game}]"]) if r["passed"] is False]
            for r in failed:
                print(f"{game}: {r['name']}: {r['message']}", file=sys.stderr)
            cells = course_of(task_class(name)(games=[game], turns=TURNS), game, games, seconds)
            print("| " + " | ".join([f"`{game}`", str(len(failed)), *cells]) + " |", flush=True)


def course_of(task, game, games, seconds):
    """Cells of a row: random games, eight at a time in turns, then each replayed from its seed.
    In every other game a move may be anything; ends after this many seconds."""
    chooser, began = random.Random(0), time.perf_counter()
    turns = differ = longest = played = 0
    stepping = 0.0
    for first in range(0, games, ABREAST):
        if time.perf_counter() - began > seconds:
            break
        rows = {f"{game} {i}": [] for i in range(first, min(games, first + ABREAST))}
        courses = {answer: [task.position(answer, ())] for answer in rows}
        while alive := [answer for answer in rows if not courses[answer][-1].over]:
            for answer in alive:
                move = choose(task, answer, rows[answer], courses[answer][-1].text, chooser)
                rows[answer].append(move)
                at = time.perf_counter()
                courses[answer].append(task.position(answer, tuple(rows[answer])))
                stepping += time.perf_counter() - at
        for answer, moves in rows.items():
            live, here = task.begin(answer)
            differ += here != courses[answer][0]
            for move, wanted in zip(moves, courses[answer][1:], strict=True):
                live, here = task.forward(live, here, answer, [move])
                differ += here != wanted
        played += len(rows)
        turns += sum(map(len, rows.values()))
        longest = max(longest, *map(len, rows.values()))
    step = f"{1000 * stepping / max(turns, 1):.2f}"
    return [*map(str, (played, turns, longest, differ)), step]


def choose(task, answer, moves, text, chooser):
    """A random move of the game's form; in a game of an even seed one that the game accepts."""
    live, _ = task.live[answer, *moves]
    with isolated(chooser.getrandbits(32)):
        form = FORMS.get(answer.split()[0])
        choices = list(form) if form else task.moves(live, text)
    chooser.shuffle(choices)
    if int(answer.split()[-1]) % 2:
        return chooser.choice([*choices[:12], *chooser.sample(ODD, 2)])
    accepts = getattr(live, "accepts", None)
    good = (m for m in choices[:TRIES] if accepts is None or accepts(live.seat, m))
    return next(good, choices[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["ids", "replays"])
    parser.add_argument("names", nargs="*", default=["textarena", "gem"])
    parser.add_argument("--out")
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of an id")
    given = parser.parse_args()
    if given.what == "ids":
        ids(given.names, given.out)
    else:
        replays(given.names, given.games, given.seconds)
