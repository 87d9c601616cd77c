"""Games of TextArena as conversations, for one player or against a scripted seat."""

import copy
import random
from typing import Annotated, Literal

from rlzoo import Range, component
from rlzoo.errors import first_line, nearest
from rlzoo_zoo.packages import needs
from rlzoo_zoo.tasks.episodes import Held, Lines, Pays, Seeds, Stop, Success, Turns, bracketed
from rlzoo_zoo.tasks.players import Demonstrated, code, either, nim, number

SEATS = range(1, 5)  # players that a game is tried with, fewest first
TRIES = 40  # moves that another seat tries for a valid one
COMMON = [f"[{n}]" for n in range(10)] + [f"[{a} {b}]" for a in range(4) for b in range(1, 4)]


@component("task")
class Textarena(Demonstrated):
    """Games of TextArena by id, as `GuessTheNumber-v0`. The policy's turn is its move; the game
    answers with the new observations. Score (B,): the reward of the policy's seat at the end.

    In a game for several players, the policy has seat `seat`; -1: the seed decides. opponent: the
    other seats choose a valid move, a "random" one of those shown in brackets, or the "first" of
    them. The games have rewards at the end. A game whose replay differs is rejected.
    Source: Guertler et al. 2025, arXiv:2504.11442.
    """

    def __init__(
        self,
        *,
        games: list[str] = ["GuessTheNumber-v0"],  # noqa: B006
        seat: Annotated[int, Range(-1, 3)] = 0,
        opponent: Literal["random", "first"] = "random",
        seeds: Seeds = 1000,
        turns: Turns = 32,
        pays: Pays = "last",
        success: Success = 1.0,
        stop: Stop = "]",
        held: Held = 512,
        lines: Lines = 0,
    ):
        needs("textarena")()
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        self.textarena, self.registry = textarena, ENV_REGISTRY
        self.seat, self.opponent = seat, opponent
        super().__init__(
            games, seeds=seeds, turns=turns, pays=pays, success=success, stop=stop, held=held,
            lines=lines,
        )  # fmt: skip

    players = {
        "GuessTheNumber-v0": number("[{}]"),
        "Mastermind-v0": code("[{}]"),
        "Nim-v0": nim(),
        "Secretary-v0": either("[accept]", "[continue]"),
    }

    def start(self, game, seed):
        if game not in self.registry:
            raise ValueError(f"games: there is no game {game!r}{nearest(game, self.registry)}")
        for players in SEATS:
            try:
                env = self.textarena.make(game)
                env.reset(num_players=players, seed=seed)
                break
            except AssertionError:  # that is how a game refuses a number of players
                continue
            except (ImportError, LookupError, OSError, RuntimeError, TypeError) as error:
                raise ValueError(f"games: {game!r} cannot start: {first_line(error)}") from None
        else:
            raise ValueError(f"games: {game!r} needs more than {SEATS[-1]} players")
        seat = seed % players if self.seat < 0 else min(self.seat, players - 1)
        table = Table(env, seat, random.Random(seed), self.opponent)
        table.others()
        return table, table.news()

    def step(self, live, move):
        live.play(move)
        live.others()
        return live.news(), live.reward() if live.over else 0.0, live.over


class Table:
    """A game, the policy's seat at it, and the other seats."""

    def __init__(self, env, seat, chooser, opponent):
        self.env, self.seat, self.chooser, self.opponent = env, seat, chooser, opponent
        self.over, self.base, self.shown = False, env, {}
        while hasattr(self.base, "env") and self.base.env is not self.base:
            self.base = self.base.env

    def play(self, move):
        self.over = bool(self.env.step(action=move)[0])

    def others(self):
        """Play the other seats until it is the policy's turn or the end."""
        while not self.over and (seat := self.base.state.current_player_id) != self.seat:
            self.shown.setdefault(seat, {}).update(dict.fromkeys(bracketed(self.news(seat))))
            self.play(self.choose(seat))

    def choose(self, seat):
        moves = list(dict.fromkeys([*self.shown[seat]][::-1] + COMMON))
        if self.opponent == "random":
            self.chooser.shuffle(moves)
        return next((m for m in moves[:TRIES] if self.accepts(seat, m)), moves[0])

    def accepts(self, seat, move):
        """Whether the game takes this move of a seat, tried on a copy."""
        logs = getattr(self.base.state, "logs", None)
        trial = copy.deepcopy(self.env, {id(logs): []})  # long ones cost the most
        turn = self.base.state.turn
        trial.step(action=move)
        state = trial.state
        return state.turn > turn and not state.game_info[seat].get("invalid_move")

    def news(self, seat=None):
        """Messages that a seat has not seen yet, without its own moves."""
        seat = self.seat if seat is None else seat
        messages = self.base.state.observations[seat]
        self.base.state.observations[seat] = []
        return "\n".join(str(text) for sender, text, *_ in messages if sender != seat)

    def reward(self):
        return float((self.base.state.rewards or {}).get(self.seat, 0.0))
