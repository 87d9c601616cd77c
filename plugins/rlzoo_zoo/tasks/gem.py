"""Environments of GEM as conversations."""

from rlzoo import component
from rlzoo.errors import first_line, nearest
from rlzoo_zoo.packages import needs
from rlzoo_zoo.tasks.episodes import Held, Lines, Pays, Seeds, Stop, Success, Turns
from rlzoo_zoo.tasks.players import Demonstrated, code, number


@component("task")
class Gem(Demonstrated):
    """Environments of GEM by id, as `game:GuessTheNumber-v0-easy`. The policy's turn is its action,
    usually within `\\boxed{}`; the environment answers with its next observation.

    pays: "turn" scores (B, T), each turn's reward at its last action, "sum" and "last" (B,). A game
    whose replay differs is rejected.
    Source: Liu et al. 2025, arXiv:2510.01051.
    """

    def __init__(
        self,
        *,
        games: list[str] = ["game:GuessTheNumber-v0-easy"],  # noqa: B006
        seeds: Seeds = 1000,
        turns: Turns = 32,
        pays: Pays = "turn",
        success: Success = 1.0,
        stop: Stop = "}",
        held: Held = 512,
        lines: Lines = 0,
    ):
        needs("gem")()
        import gem
        from gem.envs.registration import ENV_REGISTRY

        self.gem, self.registry = gem, ENV_REGISTRY
        super().__init__(
            games, seeds=seeds, turns=turns, pays=pays, success=success, stop=stop, held=held,
            lines=lines,
        )  # fmt: skip

    players = {
        "game:GuessTheNumber-v0-easy": number("\\boxed{{{}}}"),
        "game:Mastermind-v0-easy": code("\\boxed{{{}}}"),
    }
    parts = frozenset({"game:Mastermind-v0-easy"})

    def start(self, game, seed):
        if game not in self.registry:
            raise ValueError(f"games: there is no game {game!r}{nearest(game, self.registry)}")
        try:
            env = self.gem.make(game)
            text, info = env.reset(seed=seed)
        except (ImportError, LookupError, OSError, RuntimeError, TypeError) as error:
            raise ValueError(f"games: {game!r} cannot start: {first_line(error)}") from None
        return env, "\n".join(x for x in (text, info.get("suffix")) if x)

    def step(self, live, move):
        text, reward, terminated, truncated, _ = live.step(move)
        return text, reward, terminated or truncated

    def moves(self, live, text):
        try:
            return [live.sample_random_action() for _ in range(8)] + ["?"]
        except NotImplementedError:
            return super().moves(live, text)
