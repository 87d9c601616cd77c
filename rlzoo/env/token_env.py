"""The token MDP for gymnasium, one episode at a time.

State: prompt and tokens so far. Action: the next token. Endings and scores follow `rlzoo.mdp`, as
in the sampler. An observation is laid out like a row of a batch,

    padding | prompt | response so far | padding        (max_prompt + max_new_tokens)

so the response always begins at index `max_prompt`, and the action at time t is chosen from the
logits at index `max_prompt - 1 + t`. A score per token is paid when the token is chosen, and an
outcome at the end.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlzoo.env.rules import Rules
from rlzoo.errors import ComponentError, RlzooError, nearest
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.rules import draw_examples
from rlzoo.mdp.turns import Conversation, begin
from rlzoo.plugin.border import needs_of
from rlzoo.plugin.component import Example

RESET_OPTIONS = ("prompt", "answer", "split", "noise")
Fields = dict[str, Any]  # tensors, or a list of what each row has, by name
TOLERANCE = 1e-5  # between a score when it was paid and the same at the end


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
        self.rules, self.render_mode = rules or Rules(task, model, **options), render_mode
        most, length = self.rules.vocabulary, self.rules.max_prompt + self.rules.max_new_tokens
        self.action_space = Discrete(most)
        self.observation_space = Box(0, most - 1, (length,), np.int64)
        self.example = Example("")
        self.prompt: list[int] = []
        self.ids: list[int] = []  # of the response, the environment's tokens included
        self.talk = Conversation({})  # unused where the task holds none
        self.noise = torch.zeros(self.rules.max_new_tokens)
        self.paid: list[float] = []  # at each token
        self.terminated, self.truncated = True, False  # over, until its first `reset`
        self.only_outcomes: bool | None = None  # unknown until something has been scored
        self._check_needs()

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    @property
    def response(self) -> str:
        """The text so far, without the EOS that ended it."""
        rules, ids = self.rules, self.ids
        if rules.turns is not None:
            return "".join(rules.turns.texts(self.talk))
        ends = bool(ids) and ids[-1] in rules.eos_ids
        return mdp.decoded(rules.tokenizer, [ids[:-1] if ends else ids])[0]

    def reset(
        self, *, seed: int | None = None, options: Fields | None = None
    ) -> tuple[np.ndarray, Fields]:
        super().reset(seed=seed)
        rules, options = self.rules, options or {}
        if other := [key for key in options if key not in RESET_OPTIONS]:
            known, close = ", ".join(RESET_OPTIONS), nearest(other[0], RESET_OPTIONS)
            raise RlzooError(f"reset: there is no option {other[0]!r}{close} (available: {known})")
        if options.get("prompt") is not None:
            example = Example(options["prompt"], options.get("answer"))
        else:
            generator = torch.Generator().manual_seed(int(self.np_random.integers(2**63)))
            split = options.get("split") or rules.split
            plan = rules.plan
            (example,) = draw_examples(plan.task, plan.task_name, split, 1, generator)
        noise = options.get("noise")
        if noise is None and "noise" in rules.plan.needs:
            noise = self.np_random.random(rules.max_new_tokens)
        if noise is not None:
            self.noise = torch.as_tensor(noise, dtype=torch.float32)
        ids = rules.form.encode(example.prompt)
        if len(ids) > rules.max_prompt:
            raise RlzooError(
                f"prompt {example.prompt!r} has {len(ids)} tokens, more than "
                f"max_prompt={rules.max_prompt}"
            )
        self.example, self.prompt, self.ids, self.paid = example, ids, [], []
        self.terminated = self.truncated = False
        if rules.turns is not None:
            self.talk = begin(self._prompt_columns(), 0, rules.max_new_tokens)
        return self._observe()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Fields]:
        if self.ended:
            raise ResetNeeded("the episode is over; call reset()")
        reward = self._act(int(action))
        observation, info = self._observe()
        return observation, reward, self.terminated, self.truncated, info

    def _act(self, token: int) -> float:
        """Append a token, and the environment's answer if it ends a turn; returns the reward."""
        rules, at = self.rules, len(self.ids)
        if not 0 <= token < rules.vocabulary:
            raise ValueError(f"an action must be a token id below {rules.vocabulary}. Got {token}")
        if rules.turns is None:
            self.ids.append(token)
            ends = mdp.transition(
                torch.tensor([token]), torch.tensor([at]), rules.eos_ids, rules.max_new_tokens,
                rules.min_new_tokens,
            )  # fmt: skip
            self.terminated, self.truncated = map(bool, ends)
        else:
            talk = self.talk
            rules.turns.act([talk], [[token]])
            self.ids, self.terminated, self.truncated = talk.ids, talk.terminated, talk.truncated
        self.paid += [0.0] * (len(self.ids) - at)
        if self.only_outcomes and not self.ended:
            return 0.0
        columns = self.columns()
        scored = mdp.score(rules.plan, columns)
        if self.only_outcomes is None:
            self.only_outcomes = mdp.pays_at_the_end(rules.plan, columns)
        self.paid[at] = float(scored["scores"][0, at])
        self.score = float(scored["sequence_scores"])
        if self.ended:
            self._check_causal(columns, scored["scores"][0])
        return self.paid[at]

    def render(self) -> str | None:
        """`prompt|response`: returned in mode "ansi", printed in mode "human"."""
        text = f"{self.rules.form.text(self.example.prompt)}|{self.response}"
        if self.render_mode == "human":
            print(text)
        return text if self.render_mode == "ansi" else None

    def columns(self) -> Fields:
        """The rollout's columns of a batch of this one row: the input of a policy."""
        rules = self.rules
        if rules.turns is not None:
            columns = rules.turns.columns([self.talk], rules.pad_id, "cpu")
        else:
            mask = torch.ones(1, len(self.ids))
            columns = {
                "response_mask": mask,
                "response_attention": mask,
                "response_ids": torch.tensor([self.ids], dtype=torch.long),
                "terminated": torch.tensor([self.terminated]),
                "truncated": torch.tensor([self.truncated]),
            }
            columns["responses"] = [self.response]
            columns["turns"] = [columns["responses"]]
        padding = [rules.pad_id] * (rules.max_prompt - len(self.prompt))
        real = torch.arange(rules.max_prompt) >= len(padding)
        mask = columns["response_mask"]
        columns |= self._prompt_columns() | {
            "prompt_ids": torch.tensor([padding + self.prompt]),
            "prompt_mask": real[None].float(),
            "group_ids": torch.zeros(1, dtype=torch.long),
            "noise": torch.where(mask.bool(), self.noise[: mask.shape[1]], 0),
        }
        if "response_tokens" in rules.plan.needs:
            columns["response_tokens"] = mdp.decode_tokens(rules.tokenizer, columns, rules.eos_ids)
        return columns

    def _prompt_columns(self) -> Fields:
        form, example = self.rules.form, self.example
        return {
            "prompts": [form.text(example.prompt)],
            "messages": [form.messages(example.prompt)],
            "answers": [example.answer],
            "prompt_index": torch.tensor([example.index]),
        }

    def _observe(self) -> tuple[np.ndarray, Fields]:
        rules = self.rules
        before, after = rules.max_prompt - len(self.prompt), rules.max_new_tokens - len(self.ids)
        real = [*self.prompt, *self.ids]
        mask = np.array([0] * before + [1] * len(real) + [0] * after)
        info: Fields = {"prompt": rules.form.text(self.example.prompt)}
        info |= {"attention_mask": mask, "response": self.response}
        if self.ended:
            info |= {"score": self.score, "answer": self.example.answer}
        if self.render_mode == "human":
            self.render()
        return np.array([rules.pad_id] * before + real + [rules.pad_id] * after), info

    def _check_causal(self, columns: Fields, scores: Tensor) -> None:
        """Check that the rewards paid so far equal the scores (T,) of the whole row."""
        wrong = ((scores - torch.tensor(self.paid)).abs() > TOLERANCE).nonzero()
        if len(wrong):
            t = int(wrong[0])
            raise ComponentError(
                f"the score of token {t} was {self.paid[t]:g} when the token was chosen "
                f"but is {scores[t]:g} at the end; scores must not depend on later tokens "
                f"(prompt {columns['prompts'][0]!r}, response {columns['responses'][0]!r})"
            )

    def _check_needs(self) -> None:
        plan = self.rules.plan
        has = {*self.columns(), "task_scores"}
        wanted = {f"task {plan.task_name!r}": needs_of(plan.task.score)}
        wanted |= {f"reward {name!r}": bound.needs for name, (_, bound) in plan.rewards.items()}
        for label, needs in wanted.items():
            if missing := [need for need in needs if need not in has]:
                raise RlzooError(
                    f"{label} needs {missing[0]!r}, which an environment does not have"
                )
