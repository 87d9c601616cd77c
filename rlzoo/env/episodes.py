"""An episode of the token MDP: its rules, and its columns, which grow token by token.

A score per token is paid when the token is chosen, and an outcome at the end.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
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
        task: str | None = None,
        model: str | None = None,
        *,
        split: str = "train",
        overrides: Sequence[str] = (),
        max_prompt: int | None = None,
        **task_options: object,
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


class Episode:
    """One episode, as columns of a batch of one row that grows token by token."""

    def __init__(self, rules: Rules):
        self.rules, self.example = rules, Example("")
        self.prompt: list[int] = []
        self.ids: list[int] = []  # of the response, the environment's tokens included
        self.talk = Conversation({})  # unused where the task holds none
        self.noise = torch.zeros(rules.max_new_tokens)
        self.paid: list[float] = []  # at each token
        self.score = 0.0  # once it has ended
        self.terminated, self.truncated = True, False  # over, until its first `start`
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

    def start(self, random: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Start an episode with the prompt in `options`, or one drawn with `random`."""
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
            (self.talk,) = begin(self._prompt_columns(), 1, rules.max_new_tokens)

    def act(self, token: int) -> float:
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

    def _prompt_columns(self) -> Fields:
        form, example = self.rules.form, self.example
        return {
            "prompts": [form.text(example.prompt)],
            "messages": [form.messages(example.prompt)],
            "answers": [example.answer],
            "prompt_index": torch.tensor([example.index]),
        }

    def columns(self) -> Fields:
        """The rollout's columns of this row: the input of a policy."""
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

    def observation(self) -> tuple[np.ndarray, np.ndarray]:
        """The row, and 1 on prompt and response, 0 on padding; both (max_prompt + max_new_tokens,)
        int64."""
        rules = self.rules
        before, after = rules.max_prompt - len(self.prompt), rules.max_new_tokens - len(self.ids)
        real = [*self.prompt, *self.ids]
        row = [rules.pad_id] * before + real + [rules.pad_id] * after
        return np.array(row), np.array([0] * before + [1] * len(real) + [0] * after)

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
