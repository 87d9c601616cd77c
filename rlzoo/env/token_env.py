"""The token MDP for gymnasium, one episode at a time.

State: prompt and tokens so far. Action: the next token. Endings and scores follow `rlzoo.mdp`, as
in the sampler. An observation is laid out like a row of a batch,

    padding | prompt | response so far | padding        (max_prompt + max_new_tokens)

so the response always begins at index `max_prompt`, and the action at time t is chosen from the
logits at index `max_prompt - 1 + t`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete

from rlzoo.env.episodes import Episode, Fields, Rules


class TokenEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One response to one prompt.

    task, model: names, as in a recipe; None is the default. Only the model's tokenizer and config
        are read.
    split: the split from which prompts are drawn, "train" or "test".
    overrides: further recipe words, `["rollout.max_new_tokens=4", "rewards.overlong.weight=1"]`.
    max_prompt: maximum prompt length in tokens; None: twice the longest of 256 sampled prompts. A
        longer prompt is an error.
    Other keywords are options of the task, `digits=3`. rules: these instead of all that.

    `reset(options=...)` takes prompt (with answer), split, and noise (max_new_tokens uniforms)
    instead of random ones. info: prompt, attention_mask, response so far; at the end score, answer.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 10}

    def __init__(
        self,
        task: str | None = None,
        model: str | None = None,
        *,
        render_mode: str | None = None,
        rules: Rules | None = None,
        **options: Any,
    ):
        self.rules = rules or Rules(task, model, **options)
        self.episode = Episode(self.rules)
        most, length = self.rules.vocabulary, self.rules.max_prompt + self.rules.max_new_tokens
        self.action_space = Discrete(most)
        self.observation_space = Box(0, most - 1, (length,), np.int64)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: Fields | None = None
    ) -> tuple[np.ndarray, Fields]:
        super().reset(seed=seed)
        self.episode.start(self.np_random, options or {})
        return self._observe()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Fields]:
        episode = self.episode
        if episode.ended:
            raise ResetNeeded("the episode is over; call reset()")
        reward = episode.act(int(action))
        observation, info = self._observe()
        return observation, reward, episode.terminated, episode.truncated, info

    def columns(self) -> Fields:
        """The episode so far as a batch of one row, the input of a policy."""
        return self.episode.columns()

    def render(self) -> str | None:
        """`prompt|response`: returned in mode "ansi", printed in mode "human"."""
        text = f"{self.rules.form.text(self.episode.example.prompt)}|{self.episode.response}"
        if self.render_mode == "human":
            print(text)
        return text if self.render_mode == "ansi" else None

    def _observe(self) -> tuple[np.ndarray, Fields]:
        episode, (row, mask) = self.episode, self.episode.observation()
        info: Fields = {"prompt": self.rules.form.text(episode.example.prompt)}
        info |= {"attention_mask": mask, "response": episode.response}
        if episode.ended:
            info |= {"score": episode.score, "answer": episode.example.answer}
        if self.render_mode == "human":
            self.render()
        return row, info
