"""The token MDP for gymnasium, one episode at a time.

State: prompt and tokens so far. Action: the next token. Endings and scores follow `rlzoo.mdp`, as
in the sampler. An observation is laid out like a row of a batch,

    padding | prompt | response so far | padding        (max_prompt + max_new_tokens)

so the response always begins at index `max_prompt`, and the action at time t is chosen from the
logits at index `max_prompt - 1 + t`.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.error import ResetNeeded

from rlzoo.env.episodes import Episodes, Fields, Rules


class TokenEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One response to one prompt.

    task, model: names, as in a recipe; None is the default. Only the model's tokenizer and config
        are read.
    split: the split from which prompts are drawn, "train" or "test".
    overrides: further recipe words, `["rollout.max_new_tokens=4", "rewards.overlong.weight=1"]`.
    max_prompt: maximum prompt length in tokens; None: twice the longest of 256 sampled prompts. A
        longer prompt is an error.
    task_options: options of the task, `digits=3`.

    `reset(options=...)` takes prompt (with answer), split, and noise (max_new_tokens uniforms)
    instead of random ones. info: prompt, attention_mask, response so far; at the end score, answer.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 10}

    def __init__(
        self,
        task: str | None = None,
        model: str | None = None,
        *,
        split: str = "train",
        overrides: Sequence[str] = (),
        max_prompt: int | None = None,
        render_mode: str | None = None,
        **task_options: object,
    ):
        self.rules = Rules(task, model, split, overrides, max_prompt, task_options)
        self.episodes = Episodes(self.rules, 1, "cpu")
        self.action_space = self.rules.action_space
        self.observation_space = self.rules.observation_space
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: Fields | None = None
    ) -> tuple[np.ndarray, Fields]:
        super().reset(seed=seed)
        self.episodes.start(0, self.np_random, options or {})
        return self._observe()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Fields]:
        if bool(self.episodes.ended):
            raise ResetNeeded("the episode is over; call reset()")
        reward = self.episodes.act(torch.tensor([0]), torch.tensor([int(action)]))
        observation, info = self._observe()
        ends = bool(self.episodes.terminated), bool(self.episodes.truncated)
        return observation, reward.item(), *ends, info

    def columns(self) -> Fields:
        """The episode so far as a batch of one row, the input of a policy."""
        return self.episodes.columns()

    def render(self) -> str | None:
        """`prompt|response`: returned in mode "ansi", printed in mode "human"."""
        texts = self.episodes.render(self.render_mode)
        return texts[0] if texts else None

    def _observe(self) -> tuple[np.ndarray, Fields]:
        episodes, columns = self.episodes, self.columns()
        info = {
            "prompt": columns["prompts"][0],
            "attention_mask": episodes.attention_mask()[0].numpy(),
            "response": columns["responses"][0],
        }
        if bool(episodes.ended):
            info["score"] = episodes.sequence_scores.item()
            info["answer"] = columns["answers"][0]
        if self.render_mode == "human":
            self.render()
        return episodes.observations()[0].numpy(), info
