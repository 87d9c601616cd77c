"""The token MDP for gymnasium, many episodes side by side."""

from functools import partial
from typing import Any

import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlzoo.env.rules import Rules
from rlzoo.env.token_env import Fields, TokenEnv
from rlzoo.errors import RlzooError
from rlzoo.mdp.batch import concatenate


class TokenVectorEnv(SyncVectorEnv):
    """`num_envs` times a `TokenEnv`, whose options it takes too; the rules are read once.

    device: None uses numpy arrays, as gymnasium does; "cpu" or "cuda" uses torch tensors there, and
        lists of texts.
    autoreset_mode: when a row that has ended is reset (gymnasium's AutoresetMode).

    Reset options apply to all rows, or are lists with one value per row; `reset_mask` (B,) picks
    the rows.
    """

    def __init__(
        self,
        num_envs: int = 1,
        task: str | None = None,
        model: str | None = None,
        *,
        device: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **options: Any,
    ):
        self.rules, self.device = Rules(task, model, **options), device
        one = partial(_Row, rules=self.rules, render_mode=render_mode)
        rows = [partial(one, number=i) for i in range(num_envs)]
        super().__init__(rows, autoreset_mode=autoreset_mode)

    def reset(self, *, seed: Any = None, options: Fields | None = None) -> tuple[Any, Fields]:
        options = dict(options or {})
        if "reset_mask" in options:
            options["reset_mask"] = torch.as_tensor(options["reset_mask"]).cpu().numpy()
        for name, given in options.items():
            if isinstance(given, list) and len(given) != self.num_envs:
                raise RlzooError(f"reset: {name} has {len(given)} entries, not {self.num_envs}")
        observations, infos = super().reset(seed=seed, options=options)
        return self._out(observations), self._out(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Fields]:
        over = self._autoreset_envs
        if self.autoreset_mode == AutoresetMode.DISABLED and over.any():
            rows = over.nonzero()[0].tolist()
            raise ResetNeeded(f"rows {rows} have ended; use options['reset_mask']")
        observations, rewards, terminated, truncated, infos = map(self._out, super().step(actions))
        return observations, rewards, terminated, truncated, infos

    def columns(self) -> Fields:
        """The episodes so far as a batch, the input of a policy."""
        device = torch.device(self.device or "cpu")
        groups = torch.arange(self.num_envs, device=device)
        rows = concatenate([*self.call("columns")], self.rules.pad_id, device)
        return rows.data | {"group_ids": groups}

    def _out(self, x: Any) -> Any:
        if self.device is None:
            return x
        if isinstance(x, dict):
            return {name: self._out(value) for name, value in x.items()}
        return x.tolist() if x.dtype == object else torch.as_tensor(x, device=self.device)


class _Row(TokenEnv):
    """number: its own among the values in a list of reset options."""

    def __init__(self, *, number: int, **options: Any):
        super().__init__(**options)
        self.number = number

    def reset(self, *, seed: int | None = None, options: Fields | None = None) -> Any:
        given = options or {}
        mine = {n: x[self.number] if isinstance(x, list) else x for n, x in given.items()}
        return super().reset(seed=seed, options=mine)
