"""Episodes: games with a state, as conversations that need only their history.

A conversation has no memory: `respond(turns, answers)` answers from the turns. A game has one.
`Episodes` closes the gap. An example's answer names the game and its seed. A live game is found by
its history in a bounded cache and makes one step; without one the game is replayed from its seed.
"""

import math
import random
import re
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy
import torch

from rlzoo import Example, Range, RlzooError
from rlzoo.errors import first_line, in_short
from rlzoo_zoo.tasks.reasoning_gym import FAILURES

HELD_OUT = 5  # one seed in five
TRIED = (0, 1)  # the seeds of the trial at the start
MOVES = 8  # of a trial

# The options of each task of games.
Seeds = Annotated[int, Range(5), "of each game; one in five is held out"]
Turns = Annotated[int, Range(1, 1000), "maximum in an episode"]
Pays = Annotated[Literal["turn", "sum", "last"], "each turn's reward, their sum, or the last one"]
Success = Annotated[float, "the score from which an episode is correct"]
Stop = Annotated[str, "a text that ends a turn"]
Held = Annotated[int, Range(1), "live games in the cache"]
Lines = Annotated[int, Range(0), "last lines of an observation that the policy gets; 0: all"]


@dataclass(frozen=True)
class Position:
    """Where an episode is: the last observation, the reward of each turn, whether it ended."""

    text: str
    rewards: tuple[float, ...] = ()
    over: bool = False


class Episodes:
    """The shared part of tasks of games, by their ids. A subclass gives `start` and `step`.

    pays: "turn" scores (B, T), each turn's reward at its last action; "sum" (B,) the sum of them;
    "last" (B,) the last one of an episode that ended, else 0. The state key of a turn is what the
    policy gets before it.
    """

    def __init__(self, games, *, seeds, turns, pays, success, stop, held, lines=0):
        if not games:
            raise ValueError("games: give at least one game")
        self.games, self.seeds, self.most = list(games), seeds, turns
        self.pays, self.success, self.held = pays, success, held
        self.lines = lines
        self.stops = (stop,) if stop else ()
        self.domains = tuple(self.games) if len(self.games) > 1 else ()
        self.live: OrderedDict[tuple[str, ...], tuple[Any, Position]] = OrderedDict()
        self.seen: OrderedDict[tuple[str, ...], Position] = OrderedDict()
        for game in self.games:
            self.try_out(game)

    def start(self, game: str, seed: int) -> tuple[Any, str]:
        """A live game and its first observation."""
        raise NotImplementedError

    def step(self, live: Any, move: str) -> tuple[str, float, bool]:
        """(observation, reward, whether the episode is over) after a move of the policy."""
        raise NotImplementedError

    def moves(self, live: Any, text: str) -> list[str]:
        """Some moves for a trial: here those in brackets in the observation, and numbers."""
        return bracketed(text) + [f"[{n}]" for n in range(10)] + ["[1 2]", "[up]", "?", ""]

    # ------------------------------------------------------------ the game from its history

    def position(self, answer: str, moves: Sequence[str]) -> Position:
        """The position after some moves of the policy."""
        key = (answer, *moves)
        if key in self.seen:
            self.seen.move_to_end(key)
            return self.seen[key]
        if moves and key[:-1] in self.live:
            live, here = self.live.pop(key[:-1])
            live, here = self.forward(live, here, answer, moves[-1:])
        else:
            live, here = self.replay(answer, moves)
        if not here.over:
            keep(self.live, key, (live, here), self.held)
        keep(self.seen, key, here, 16 * self.held)
        return here

    def replay(self, answer, moves):
        live, here = self.begin(answer)
        return self.forward(live, here, answer, moves)

    def begin(self, answer):
        game, _, seed = answer.rpartition(" ")
        with isolated(seed_of(answer, 0)):
            live, text = self.start(game, int(seed))
        return live, Position(text.strip())

    def forward(self, live, here, answer, moves):
        """The game and its position after further moves; what follows the end is left out."""
        for move in moves:
            if here.over:
                break
            turn = len(here.rewards) + 1
            try:
                with isolated(seed_of(answer, turn)):
                    text, reward, over = self.step(live, move)
            except FAILURES as error:  # many games have a move at which they fail
                fault = f"{type(error).__name__}: {first_line(error)}"
                warnings.warn(f"{answer}: the game failed on a move ({fault})", stacklevel=2)
                text, reward, over = "", 0.0, True
            over = over or turn >= self.most
            try:
                paid = float(reward.item() if hasattr(reward, "item") else reward)
            except (TypeError, ValueError):
                raise RlzooError(
                    f"{answer}: the reward {in_short(reward)} is not a number"
                ) from None
            here = Position(text.strip(), (*here.rewards, paid), bool(over))
        return live, here

    def try_out(self, game):
        """Play random moves twice; raises ValueError where the game cannot start or differs."""
        for seed in TRIED:
            answer, chooser = f"{game} {seed}", random.Random(seed)
            said: list[str] = []
            live, here = self.begin(answer)
            course = [here]
            while not here.over and len(said) < MOVES:
                with isolated(chooser.getrandbits(32)):
                    said.append(chooser.choice(self.moves(live, here.text)))
                live, here = self.forward(live, here, answer, said[-1:])
                course.append(here)
            if odd := [r for r in here.rewards if not math.isfinite(r)]:
                raise ValueError(f"games: {game!r} gives the reward {odd[0]} (seed {seed})")
            live, here = self.begin(answer)
            for n, wanted in enumerate(course):
                if n:
                    live, here = self.forward(live, here, answer, said[n - 1 : n])
                if here != wanted:
                    raise ValueError(
                        f"games: {game!r} gives different replies when it is replayed (seed "
                        f"{seed}, turn {n}); a task needs games that depend only on seed and moves"
                    )

    # ------------------------------------------------------------ the task

    def draw(self, split, n, generator):
        held = [s for s in range(self.seeds) if (s % HELD_OUT == 0) == (split == "test")]
        pairs = len(held) * len(self.games)
        picks = torch.randint(pairs, (n,), generator=generator).tolist()
        return [
            self.example(self.games[p % len(self.games)], held[p // len(self.games)]) for p in picks
        ]

    def example(self, game, seed):
        answer = f"{game} {seed}"
        text = self.shown(self.position(answer, ()).text)
        return Example(text, answer, self.games.index(game) * self.seeds + seed)

    def shown(self, text):
        """An observation as it enters the conversation: on lines of its own."""
        lines = text.split("\n")[-self.lines :]
        return "\n" + "\n".join(lines) + "\n"

    def domain_of(self, example):
        return example.answer.rpartition(" ")[0]

    def respond(self, turns, answers):
        found = [self.position(a, t[::2]) for t, a in zip(turns, answers, strict=True)]
        return [None if here.over else self.shown(here.text) for here in found]

    def state_keys(self, turns):
        return [t[-1] if t else "" for t in turns]

    def rewards(self, turns, answer, terminated):
        """The reward of each turn of the policy that has ended."""
        ended = (len(turns) + terminated) // 2
        return self.position(answer, turns[: 2 * ended : 2]).rewards

    def score(self, turns, answers, turn_ids, response_mask, terminated):
        rows = zip(turns, answers, terminated.tolist(), strict=True)
        paid = [self.rewards(*row) for row in rows]
        if self.pays == "sum":
            return torch.tensor([sum(x) for x in paid], dtype=torch.float, device=terminated.device)
        if self.pays == "last":
            last = torch.tensor([x[-1] if x else 0.0 for x in paid])
            return last.to(terminated.device) * terminated
        most = max(map(len, paid), default=0)
        table = torch.tensor([[0.0, *x, *[0.0] * (most - len(x))] for x in paid])  # (B, 1 + turns)
        table = table.reshape(len(paid), 1 + most).to(turn_ids.device)
        after = torch.nn.functional.pad(turn_ids[:, 1:], (0, 1))
        ends = (turn_ids != after) & (turn_ids <= most)  # (B, T): the last token of each turn
        found = table.gather(1, turn_ids.clamp(max=most))
        return torch.where(ends, found, 0.0) * response_mask

    def is_correct(self, turns, answers):
        found = [self.position(a, t[::2]) for t, a in zip(turns, answers, strict=True)]
        value = (lambda x: x[-1:]) if self.pays == "last" else (lambda x: x)
        return torch.tensor([h.over and sum(value(h.rewards)) >= self.success for h in found])


@contextmanager
def isolated(seed):
    """Python's and numpy's global random state seeded, and put back afterwards: games use them, and
    one row must not disturb another."""
    own, numpys = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(own)
        numpy.random.set_state(numpys)


def seed_of(answer, turn):
    """The seed of the random numbers in one turn of an episode."""
    return zlib.crc32(f"{answer} {turn}".encode())


def bracketed(text):
    """The moves that a text shows in brackets, each once, in order."""
    return list(dict.fromkeys(re.findall(r"\[[^\[\]\n]{1,20}\]", text)))


def keep(cache, key, value, most):
    """Put an entry into a cache and drop the oldest beyond `most`."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
