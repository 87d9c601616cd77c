"""The token MDP for gymnasium, many episodes at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rlzoo.env.episodes import Episodes, Fields, Rules
from rlzoo.errors import RlzooError


class TokenVectorEnv(VectorEnv):
    """`num_envs` episodes side by side, stepped and scored as tensors.

    device: None uses numpy arrays, as gymnasium does; "cpu" or "cuda" uses torch tensors there, and
        lists of texts.
    autoreset_mode: when a row that has ended is reset (gymnasium's AutoresetMode).

    Everything else is as in `TokenEnv`; row i equals a TokenEnv that was reset with `seed + i`.
    Reset options apply to all rows, or are lists with one value per row; `reset_mask` (B,) picks
    the rows. info holds `response`, `score` and `answer` of the rows that have just ended.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 10}

    def __init__(
        self,
        num_envs: int = 1,
        task: str | None = None,
        model: str | None = None,
        *,
        device: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        split: str = "train",
        overrides: Sequence[str] = (),
        max_prompt: int | None = None,
        render_mode: str | None = None,
        **task_options: object,
    ):
        self.rules = Rules(task, model, split, overrides, max_prompt, task_options)
        self.episodes = Episodes(self.rules, num_envs, device or "cpu")
        self.num_envs = num_envs
        self.numpy = device is None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_action_space = self.rules.action_space
        self.single_observation_space = self.rules.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.render_mode = render_mode
        self._random = [seeding.np_random()[0] for _ in range(num_envs)]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Fields | None = None
    ) -> tuple[Any, Fields]:
        options = dict(options or {})
        everyone = np.ones(self.num_envs, dtype=bool)
        chosen = torch.as_tensor(options.pop("reset_mask", everyone), device=self.episodes.device)
        seeds = [seed] * self.num_envs if seed is None else seed
        if isinstance(seeds, int):
            seeds = [seeds + i for i in range(self.num_envs)]
        for name, given in {"seed": seeds, **options}.items():
            if isinstance(given, list) and len(given) != self.num_envs:
                raise RlzooError(f"reset: {name} has {len(given)} entries, not {self.num_envs}")
        for i in indices(chosen):
            if seeds[i] is not None:
                self._random[i] = seeding.np_random(seeds[i])[0]
            mine = {n: x[i] if isinstance(x, list) else x for n, x in options.items()}
            self.episodes.start(i, self._random[i], mine)
        return self._out(self.episodes.observations()), self._infos(chosen)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Fields]:
        episodes = self.episodes
        actions = torch.as_tensor(actions, device=episodes.device)
        over = episodes.ended
        everyone = torch.ones_like(over)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            self._restart(over)
        elif bool(over.any()):
            raise ResetNeeded(f"rows {indices(over)} have ended; use options['reset_mask']")
        acting = (~over).nonzero().squeeze(1)
        rewards = episodes.act(acting, actions[acting])
        terminated, truncated = episodes.terminated.clone(), episodes.truncated.clone()
        infos: Fields = {}
        ended = terminated | truncated
        if self.autoreset_mode == AutoresetMode.SAME_STEP and bool(ended.any()):
            final = episodes.observations()
            infos["final_obs"] = self._list(list(final.numpy()), ended) if self.numpy else final
            infos["final_info"] = self._infos(ended)
            infos["_final_obs"] = infos["_final_info"] = self._out(ended)
            self._restart(ended)
        infos.update(self._infos(everyone))
        rewards = rewards.double() if self.numpy else rewards
        results = (episodes.observations(), rewards, terminated, truncated)
        return *map(self._out, results), infos

    def columns(self) -> Fields:
        """The episodes so far as a batch, the input of a policy."""
        return self.episodes.columns()

    def render(self) -> tuple[str, ...] | None:
        """`prompt|response` of each row: returned in mode "ansi", printed in mode "human"."""
        return self.episodes.render(self.render_mode)

    def _restart(self, over: Tensor) -> None:
        for i in indices(over):
            self.episodes.start(i, self._random[i], {})

    def _infos(self, rows: Tensor) -> Fields:
        """gymnasium's format: `name` holds a value per row; `_name` marks the rows with one."""
        episodes = self.episodes
        infos = {
            "prompt": self._list([e.prompt for e in episodes.examples], rows),
            "attention_mask": self._out(episodes.attention_mask() * rows[:, None]),
        }
        infos |= {f"_{name}": self._out(rows) for name in infos}
        ended = rows & episodes.ended
        if bool(ended.any()):
            index = ended.nonzero().squeeze(1)
            texts = dict(zip(indices(ended), episodes.columns(index)["responses"], strict=True))
            last = {
                "response": self._list([texts.get(i) for i in range(self.num_envs)], ended),
                "score": self._out(torch.where(ended, episodes.sequence_scores.double(), 0)),
                "answer": self._list([e.answer for e in episodes.examples], ended),
            }
            infos |= last | {f"_{name}": self._out(ended) for name in last}
        return infos

    def _list(self, values: Sequence[object], mask: Tensor) -> np.ndarray | list[object]:
        """One value for each row, None off the mask: a list, or numpy's array of objects."""
        given = [x if m else None for x, m in zip(values, mask.tolist(), strict=True)]
        return np.array([*given, None], dtype=object)[:-1] if self.numpy else given

    def _out(self, x: Tensor) -> Any:
        return x.numpy().copy() if self.numpy else x.clone()


def indices(mask: Tensor) -> list[int]:
    """The rows that a mask (B,) selects."""
    return mask.nonzero().squeeze(1).tolist()
