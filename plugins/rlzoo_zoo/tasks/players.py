"""Scripted players of games: what `rlzoo model base` learns the form of a game from."""

import re
from functools import reduce
from itertools import permutations
from operator import xor

import torch

from rlzoo_zoo.tasks.episodes import Episodes

TRIES = 100  # games until one ends as it should


class Demonstrated(Episodes):
    """Games that have `demonstrate` where they all have a scripted player.

    A subclass gives `players`: a game's id -> (player, random), each (observations, generator) ->
    the next move. The observations are those so far, whole, the first one with the rules. `parts`:
    games whose rewards add up to a win, so that the last one does not show it.
    """

    players: dict = {}
    parts: frozenset[str] = frozenset()

    @property
    def demonstrate(self):
        """A method, or None where a game has no player, the policy does not move first, or a win is
        not right."""
        known = set(self.games) <= set(self.players) and not getattr(self, "seat", 0)
        right = self.success <= 1 and (self.pays != "last" or self.parts.isdisjoint(self.games))
        return self.both if known and right else None

    def both(self, example, generator):
        """(right, wrong): turns of a game of the player, of TRIES the first that it wins, and of a
        random one that is lost."""
        player, chance = self.players[self.domain_of(example)]
        right, _ = self.found(example.answer, player, True, generator)
        wrong, lost = self.found(example.answer, chance, False, generator)
        return right, wrong if lost else ["?"]

    def found(self, answer, choose, won, generator):
        """The turns of a game, and whether it ended so."""
        for _ in range(TRIES):
            turns = self.played(answer, choose, generator)
            if self.is_correct([turns], [answer]).item() == won:
                return turns, True
        return turns, False

    def played(self, answer, choose, generator):
        """The turns of an episode: a move, what it is answered, ..., a move."""
        moves: list[str] = []
        here = self.position(answer, moves)
        seen, turns = [here.text], []
        while not here.over:
            moves.append(choose(seen, generator))
            here = self.position(answer, moves)
            seen.append(here.text)
            turns += [moves[-1], self.shown(here.text)]
        return turns[:-1]


def number(form):
    """Players of a game that gives the range, then `higher` or `lower`: halving, and chance."""

    def interval(seen):
        low, high = map(int, re.findall(r"between (\d+) and (\d+)", seen[0])[0])
        top, guess = high, 0
        for text in seen[1:]:
            guess = (low + high) // 2
            low, high = (guess + 1, high) if "higher" in text else (low, guess - 1)
        return low, high, top

    def halve(seen, generator):
        low, high, _ = interval(seen)
        return form.format((low + high) // 2)

    def guess(seen, generator):
        _, _, top = interval(seen[:1])
        return form.format(draw(top, generator) + 1)

    return halve, guess


def code(form):
    """Players of Mastermind without repeated digits: a code that fits all answers, and chance."""

    def codes(text):
        size = int(re.findall(r"(\d+) digit", text)[0])
        return list(permutations(range(1, int(re.findall(r"1 to (\d+)", text)[0]) + 1), size))

    def fit(seen, generator):
        left, moves = codes(seen[0]), []
        for text in seen[1:]:
            black, white = map(int, re.findall(r"(\d+) (?:black|white)", text)[:2])
            moves.append(left[0])
            left = [c for c in left if pegs(c, moves[-1]) == (black, white)]
        return form.format(" ".join(map(str, left[0])))

    def guess(seen, generator):
        every = codes(seen[0])
        return form.format(" ".join(map(str, every[draw(len(every), generator)])))

    return fit, guess


def pegs(one, other):
    """(black, white): digits at their places, digits elsewhere."""
    black = sum(a == b for a, b in zip(one, other, strict=True))
    return black, len(set(one) & set(other)) - black


def nim():
    """Players of Nim: a move after which the piles' sizes have the exclusive or 0, and chance."""

    def piles(text):
        found = re.findall(r"pile (\d+): (\d+)", text)
        return dict(sorted({int(a): int(b) for a, b in found}.items()))  # the last of each pile

    def win(seen, generator):
        now = piles(seen[-1])
        total = reduce(xor, now.values())
        for pile, size in now.items():
            if size ^ total < size:
                return f"[{pile} {size - (size ^ total)}]"
        return chance(seen, generator)

    def chance(seen, generator):
        moves = [(p, n + 1) for p, size in piles(seen[-1]).items() for n in range(size)]
        pile, count = moves[draw(len(moves), generator)]
        return f"[{pile} {count}]"

    return win, chance


def either(*moves):
    """Chance twice, for a game of few moves: it wins some games and loses some."""

    def chance(seen, generator):
        return moves[draw(len(moves), generator)]

    return chance, chance


def draw(n, generator):
    return int(torch.randint(n, (), generator=generator))
