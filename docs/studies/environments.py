"""Games that work as tasks without a network, and how equal and quick their replays are.

    python docs/studies/environments.py ids textarena gem --out docs/assets/offline-games.txt
    python docs/studies/environments.py replays --games 1000

`ids` makes a task of the first id of each game in a process of its own, in 20 s of CPU.
`replays` plays random games, invalid moves included, and replays each from its seed.
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

LIMIT, WAIT = 20, 120  # seconds of CPU and of time for an id
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


def replays(games):
    """A row for each of ten TextArena and five GEM ids."""
    print("| id | games | turns | replies that differ | ms a step | ms a replay |")
    print("|---|---|---|---|---|---|")
    warnings.simplefilter("ignore")
    for name, every in (("textarena", TEXTARENA), ("gem", GEM)):
        for game in every:
            print(row(task_class(name), game, games), flush=True)


def row(kind, game, games):
    first = kind(games=[game], held=64)
    chooser = random.Random(0)
    turns = differ = 0
    stepping = replaying = 0.0
    for i in range(games):
        answer, moves = f"{game} {i}", []
        course = [first.position(answer, ())]
        while not course[-1].over:
            choices = first.moves(first.live[answer, *moves][0], course[-1].text)
            moves.append(chooser.choice([*choices, "?!", "x" * 50]))
            began = time.perf_counter()
            course.append(first.position(answer, tuple(moves)))
            stepping += time.perf_counter() - began
        turns += len(moves)
        began = time.perf_counter()
        live, here = first.begin(answer)
        for k, wanted in enumerate(course):
            if k:
                live, here = first.forward(live, here, answer, moves[k - 1 : k])
            differ += here != wanted
        replaying += time.perf_counter() - began
    step, replay = 1000 * stepping / max(turns, 1), 1000 * replaying / games
    return f"| `{game}` | {games} | {turns} | {differ} | {step:.2f} | {replay:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["ids", "replays"])
    parser.add_argument("names", nargs="*", default=["textarena", "gem"])
    parser.add_argument("--out")
    parser.add_argument("--games", type=int, default=1000)
    given = parser.parse_args()
    ids(given.names or ["textarena", "gem"], given.out) if given.what == "ids" else replays(
        given.games
    )
