"""Environments of gymnasium as conversations, with numbers as text and moves as numbers."""

import importlib
import re
from typing import Literal

import numpy

from rlzoo import RlzooError, component
from rlzoo.errors import first_line, in_short, nearest
from rlzoo_zoo.tasks import spaces
from rlzoo_zoo.tasks.episodes import Episodes, Held, Pays, Seeds, Stop, Success, Turns
from rlzoo_zoo.tasks.reasoning_gym import setting


@component("task")
class Gymnasium(Episodes):
    """Environments of gymnasium by id. The policy's turn is an action: the last number of its text,
    or as many numbers as an action has, by the rules of the reward `numeric`; with a space of
    texts, the turn itself. The environment answers with the next observation, or with `not a move`
    if the text has no action within the bounds, which costs a turn. Other spaces are refused.

    games: ids, or `module:id` to import the module that registers it; config: settings of
    `gymnasium.make`, a list of `name=value`; show: observations as "numbers", or as "text" drawn by
    the environment, with brackets around marks that a terminal would color. pays: "turn" scores (B,
    T), each turn's reward at its last action, "sum" and "last" (B,). A game whose replay differs is
    rejected. For other texts, override `obs_to_text` and `parse` in a subclass.
    Source: Towers et al. 2024, arXiv:2407.17032.
    """

    def __init__(
        self,
        *,
        games: list[str] = ["FrozenLake-v1"],  # noqa: B006
        config: list[str] = [],  # noqa: B006
        show: Literal["numbers", "text"] = "numbers",
        seeds: Seeds = 1000,
        turns: Turns = 32,
        pays: Pays = "turn",
        success: Success = 1.0,
        stop: Stop = "",
        held: Held = 512,
    ):
        import gymnasium

        self.gymnasium, self.config, self.show = gymnasium, dict(map(setting, config)), show
        super().__init__(
            games, seeds=seeds, turns=turns, pays=pays, success=success, stop=stop, held=held
        )

    def start(self, game, seed):
        module, _, name = game.rpartition(":")
        if module:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ValueError(f"games: {game!r}: {first_line(error)}") from None
        registry = self.gymnasium.registry
        if name not in registry:
            raise ValueError(f"games: there is no environment {name!r}{nearest(name, registry)}")
        drawn = {"render_mode": "ansi"} if self.show == "text" else {}
        try:  # `step` has the checks that count
            env = self.gymnasium.make(game, disable_env_checker=True, **drawn, **self.config)
        except (self.gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(f"games: {game!r} cannot be created: {first_line(error)}") from None
        found = env.reset(seed=seed)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
            raise ValueError(f"games: {game!r}: reset must return an observation and a dict, as "
                             f"from gym 0.26 on. Got {in_short(found)}")  # fmt: skip
        observation = found[0]
        env.action_space.seed(seed)
        try:
            return env, f"{name}: {self.describe(env)}\n{self.obs_to_text(env, observation)}"
        except ValueError as error:
            raise ValueError(
                f"games: {game!r}: {error} (action space {in_short(env.action_space)}, observation "
                f"space {in_short(env.observation_space)}); override describe, moves, parse and "
                "obs_to_text in a subclass of Gymnasium"
            ) from None

    def step(self, live, move):
        action = self.parse(live, move)
        if action is None:
            return "not a move", 0.0, False
        found = live.step(action)
        ends = [numpy.asarray(x) for x in found[2:4]]
        if len(found) != 5 or any(x.size != 1 or x.dtype.kind not in "bi" for x in ends):
            raise RlzooError(f"{live}: step must return an observation, a reward, whether "
                             "the episode is over, whether it is cut, and a dict, as from gym 0.26 "
                             f"on. Got {' '.join(in_short(found).split())}")  # fmt: skip
        try:
            return self.obs_to_text(live, found[0]), found[1], any(x.item() for x in ends)
        except ValueError as error:
            raise RlzooError(f"{live}: {error}") from None

    def moves(self, live, text):
        return [spaces.written(live.action_space.sample()), "?"]

    def describe(self, env):
        """The form of an action, for the prompt."""
        return f"a move is {spaces.describe(env.action_space)}."

    def obs_to_text(self, env, observation):
        """An observation as text."""
        if self.show == "text":
            return re.sub(r"\x1b\[[\d;]*m", "", re.sub(MARKED, r"[\1]", str(env.render())))
        return spaces.shown(observation)

    def parse(self, env, text):
        """The action that a text means, or None."""
        return spaces.read(env.action_space, text.removesuffix(self.stops[0] if self.stops else ""))


MARKED = r"\x1b\[[\d;]*m(.)\x1b\[0m"  # one character in color
