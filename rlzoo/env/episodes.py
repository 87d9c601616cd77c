"""Episodes of the token MDP: their rules, and their columns, which grow token by token.

A score per token is paid when the token is chosen, and an outcome at the end.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError, nearest
from rlzoo.lm.loading import eos_ids, load_config, load_tokenizer, resolve_path
from rlzoo.lm.prompts import PromptFormat, drawn
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.rules import draw_examples
from rlzoo.mdp.turns import Conversation, Turns, begin
from rlzoo.plugin.border import needs_of
from rlzoo.plugin.component import Example
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

RESET_OPTIONS = ("prompt", "answer", "split", "noise")
Fields = dict[str, Any]  # tensors, or a list of what each row has, by name
TOLERANCE = 1e-5  # between a score when it was paid and the same at the end


class Rules:
    """A task and rewards, as a recipe with these keys has them, with the tokenizer and config of a
    model's folder. No weights. Names left out are the defaults'."""

    def __init__(
        self,
        task: str | None,
        model: str | None,
        split: str,
        overrides: Sequence[str],
        max_prompt: int | None,
        task_options: Mapping[str, object],
    ):
        chosen = {"task": task, "model": model}
        words = [f"{key}={name}" for key, name in chosen.items() if name is not None]
        words += [f"task.{key}={json.dumps(value)}" for key, value in task_options.items()]
        zoo = load_zoo()
        self.plan = make_plan(compose([*words, *overrides], zoo, need_recipe=False), zoo)
        m = self.plan.recipe.config.model
        rollout = self.plan.recipe.config.rollout
        folder = resolve_path(m.path)
        self.tokenizer = load_tokenizer(
            folder,
            trust_remote_code=m.trust_remote_code,
            chat_args=m.chat_args,
            ends=not rollout.ignore_eos,
        )
        config = load_config(folder, trust_remote_code=m.trust_remote_code)
        self.form = PromptFormat(self.tokenizer, m.chat, m.system)
        of = (self.plan.task, self.plan.task_name)
        ids = [] if rollout.ignore_eos else eos_ids(config, self.tokenizer)
        self.eos_ids = self.form.ends(*of, ids) if ids else []
        self.pad_id = int(self.tokenizer.pad_token_id)
        self.vocabulary: int = config.get_text_config().vocab_size
        self.max_new_tokens: int = rollout.max_new_tokens
        self.min_new_tokens: int = rollout.min_new_tokens
        if max_prompt is None:
            prompts = drawn(*of, "train")
            max_prompt = 2 * max(map(len, self.form.encode_each(prompts)))
        self.max_prompt = max_prompt
        self.split = split
        # How conversations go, where the task holds any.
        talks = self.plan.conversation
        self.turns = Turns(self.plan, self.tokenizer, self.eos_ids) if talks else None

    def __deepcopy__(self, memo: dict[int, object]) -> "Rules":
        return self  # nothing in it changes, so that copies of an environment (search) are cheap

    @property
    def observation_space(self) -> Box:
        length = self.max_prompt + self.max_new_tokens
        return Box(0, self.vocabulary - 1, (length,), np.int64)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.vocabulary)


class Episodes:
    """Several episodes at once, as columns of a batch that grow token by token."""

    def __init__(self, rules: Rules, rows: int, device: torch.device | str):
        self.rules = rules
        self.device = torch.device(device)
        self.examples: list[Example] = [Example("")] * rows
        limit = rules.max_new_tokens

        def new(value: float, *shape: int) -> Tensor:
            return torch.full((rows, *shape), value, device=self.device)

        self.prompt_ids = new(rules.pad_id, rules.max_prompt)
        self.prompt_mask = new(0.0, rules.max_prompt)
        self.response_ids = new(rules.pad_id, limit)
        self.lengths = new(0)  # of the response, the environment's tokens included
        self.talks = [Conversation({}) for _ in range(rows)]  # unused where the task holds none
        self.noise, self.paid = new(0.0, limit), new(0.0, limit)
        self.sequence_scores = new(0.0)  # of rows that have ended
        self.terminated, self.truncated = new(True), new(False)  # over, until its first `start`
        self.only_outcomes: bool | None = None  # unknown until something has been scored
        self._check_needs()

    @property
    def ended(self) -> Tensor:
        """(B,)"""
        return self.terminated | self.truncated

    def start(self, row: int, random: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Start an episode in one row with the prompt in `options`, or one drawn with `random`."""
        rules = self.rules
        if other := [key for key in options if key not in RESET_OPTIONS]:
            known, close = ", ".join(RESET_OPTIONS), nearest(other[0], RESET_OPTIONS)
            raise RlzooError(f"reset: there is no option {other[0]!r}{close} (available: {known})")
        if options.get("prompt") is not None:
            example = Example(options["prompt"], options.get("answer"))
        else:
            generator = torch.Generator().manual_seed(int(random.integers(2**63)))
            split = options.get("split") or rules.split
            plan = rules.plan
            (example,) = draw_examples(plan.task, plan.task_name, split, 1, generator)
        noise = options.get("noise")
        if noise is None and "noise" in rules.plan.needs:
            noise = random.random(rules.max_new_tokens)
        if noise is not None:
            self.noise[row] = torch.as_tensor(noise)
        ids = rules.form.encode(example.prompt)
        if len(ids) > rules.max_prompt:
            raise RlzooError(
                f"prompt {example.prompt!r} has {len(ids)} tokens, more than "
                f"max_prompt={rules.max_prompt}"
            )
        self.examples[row] = example
        self.prompt_ids[row], self.response_ids[row] = rules.pad_id, rules.pad_id
        self.prompt_ids[row, -len(ids) :] = torch.tensor(ids, device=self.device)
        for state in (self.prompt_mask, self.lengths, self.terminated, self.truncated, self.paid):
            state[row] = 0
        self.prompt_mask[row, -len(ids) :] = 1
        if rules.turns is not None:
            columns = self._prompt_columns([row])
            (self.talks[row],) = begin(columns, 1, rules.max_new_tokens)

    def act(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Append tokens (R,) to the rows (R,) int64; returns the reward of each row, (B,)."""
        rules = self.rules
        if bool(((tokens < 0) | (tokens >= rules.vocabulary)).any()):
            raise ValueError(f"an action must be a token id below {rules.vocabulary}. Got {tokens}")
        rewards = torch.zeros(len(self.examples), device=self.device)
        position = self.lengths[rows]
        if rules.turns is None:
            self.response_ids[rows, position] = tokens
            self.lengths[rows] = position + 1
            self.terminated[rows], self.truncated[rows] = mdp.transition(
                tokens, position, rules.eos_ids, rules.max_new_tokens, rules.min_new_tokens
            )
        else:
            self._converse(rules.turns, rows, tokens)
        ended = self.ended[rows]
        due, last = (rows[ended], position[ended]) if self.only_outcomes else (rows, position)
        if not len(due):
            return rewards
        columns = self.columns(due)
        scored = mdp.score(rules.plan, columns)
        if self.only_outcomes is None:
            self.only_outcomes = mdp.pays_at_the_end(rules.plan, columns)
        rewards[due] = scored["scores"].gather(1, last[:, None]).squeeze(1)
        self.paid[due, last] = rewards[due]
        self.sequence_scores[due] = scored["sequence_scores"]
        self._check_causal(due, columns, scored["scores"])
        return rewards

    def _converse(self, rules: Turns, rows: Tensor, tokens: Tensor) -> None:
        """Append one token to each row, and the environment's answer if it ends a turn."""
        talks = [self.talks[i] for i in rows.tolist()]
        rules.act(talks, tokens[:, None].tolist())
        for i, talk in zip(rows.tolist(), talks, strict=True):
            begun, self.lengths[i] = int(self.lengths[i]), len(talk.ids)
            new = torch.tensor(talk.ids[begun:], device=self.device)
            self.response_ids[i, begun : len(talk.ids)] = new
            self.terminated[i], self.truncated[i] = talk.terminated, talk.truncated

    def _prompt_columns(self, rows: list[int]) -> Fields:
        form, examples = self.rules.form, [self.examples[i] for i in rows]
        return {
            "prompts": [form.text(e.prompt) for e in examples],
            "messages": [form.messages(e.prompt) for e in examples],
            "answers": [e.answer for e in examples],
            "prompt_index": torch.tensor([e.index for e in examples], device=self.device),
        }

    def columns(self, rows: Tensor | None = None) -> Fields:
        """The rollout's columns of some rows (R,), or of all, padded to the longest response so
        far: the input of a policy."""
        if rows is None:
            rows = torch.arange(len(self.examples), device=self.device)
        rules, picked = self.rules, rows.tolist()
        if rules.turns is not None:
            talks = [self.talks[i] for i in picked]
            columns = rules.turns.columns(talks, rules.pad_id, self.device)
        else:
            lengths = self.lengths[rows]
            width = int(lengths.max())
            mask = (torch.arange(width, device=self.device) < lengths[:, None]).float()
            columns = {
                "response_mask": mask,
                "response_attention": mask,
                "response_ids": self.response_ids[rows, :width],
                "terminated": self.terminated[rows],
                "truncated": self.truncated[rows],
            }
            columns["responses"] = mdp.decode(rules.tokenizer, columns, rules.eos_ids)
            columns["turns"] = [[text] for text in columns["responses"]]
        columns |= self._prompt_columns(picked)
        columns |= {
            "prompt_ids": self.prompt_ids[rows],
            "prompt_mask": self.prompt_mask[rows],
            "group_ids": rows,
        }
        mask = columns["response_mask"]
        columns["noise"] = torch.where(mask.bool(), self.noise[rows, : mask.shape[1]], 0)
        if "response_tokens" in rules.plan.needs:
            columns["response_tokens"] = mdp.decode_tokens(rules.tokenizer, columns, rules.eos_ids)
        return columns

    def observations(self) -> Tensor:
        """(B, max_prompt + max_new_tokens) int64"""
        return torch.cat([self.prompt_ids, self.response_ids], 1)

    def attention_mask(self) -> Tensor:
        """(B, max_prompt + max_new_tokens) int64: 1 on prompt and response, 0 on padding."""
        steps = torch.arange(self.rules.max_new_tokens, device=self.device)
        return torch.cat([self.prompt_mask, steps < self.lengths[:, None]], 1).long()

    def render(self, mode: str | None) -> tuple[str, ...] | None:
        """`prompt|response` of each row: returned in mode "ansi", printed in mode "human"."""
        columns = self.columns()
        pairs = zip(columns["prompts"], columns["responses"], strict=True)
        texts = tuple(f"{prompt}|{response}" for prompt, response in pairs)
        if mode == "human":
            print(*texts, sep="\n")
        return texts if mode == "ansi" else None

    def _check_causal(self, rows: Tensor, columns: Fields, scores: Tensor) -> None:
        """Check that the rewards paid so far equal the scores of the whole row, token by token."""
        gap = (scores - self.paid[rows, : scores.shape[1]]).abs() > TOLERANCE
        wrong = (gap.any(1) & self.ended[rows]).nonzero()
        if len(wrong):
            i, t = int(wrong[0]), int(gap[wrong[0, 0]].nonzero()[0])
            raise ComponentError(
                f"the score of token {t} was {self.paid[rows[i], t]:g} when the token was chosen "
                f"but is {scores[i, t]:g} at the end; scores must not depend on later tokens "
                f"(prompt {columns['prompts'][i]!r}, response {columns['responses'][i]!r})"
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
