"""A run's networks: the policy, its frozen reference, a frozen teacher, and the critic."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo.accel.engine import embeddings
from rlzoo.accel.passes import Passes
from rlzoo.accel.ranks import ALONE, Ranks
from rlzoo.accel.shard import whole
from rlzoo.errors import ModelError
from rlzoo.format.text import say
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy
from rlzoo.lm.prompts import Prompt, PromptFormat, drawn, examples_of
from rlzoo.plugin.border import border
from rlzoo.recipe.plan import Plan

PATIENCE = 10.0  # seconds between lines on the prompts that are tokenized


@dataclass
class Meter:
    """`tokens`: the number generated so far; evaluations have a meter of their own."""

    tokens: int = 0

    @contextmanager
    def apart(self) -> Iterator["Meter"]:
        """In this context, tokens are counted by a separate meter."""
        other, before = Meter(), self.tokens
        try:
            yield other
        finally:
            other.tokens, self.tokens = self.tokens - before, before


@dataclass
class Models:
    """The networks that a plan needs, with their forward passes (`passes`), the number of tokens
    sampled (`meter`) and the tokenization of prompts (`prompt_format`).

    teachers: one for each domain of prompts; the key None is for all others.
    notes: lines to show to the user. contract: the results of the model's checks, by name
    (`rlzoo.lm.contract`).
    networks: those that are trained, by the name of their optimizer. tables: their embeddings
    (`rlzoo.accel.engine.Networks`).
    shared: whether the critic is a head on the policy's trunk.
    sharded: whether weights are spread over ranks.
    stats, entropy_grad: the outputs, next to log-probs, of the policy's passes in an update, and
    whether the entropy has a gradient (`Policy.log_prob_stats`).
    """

    plan: Plan
    policy: Policy
    reference: Policy | None = None
    teachers: dict[str | None, Policy] = field(default_factory=dict)
    critic: Critic | None = None
    seed: int = 0
    ranks: Ranks = ALONE
    meter: Meter = field(default_factory=Meter)
    notes: list[str] = field(default_factory=list)
    contract: dict[str, str] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)  # of columns, from step to step
    networks: dict[str, nn.Module] = field(init=False)
    tables: list[nn.Embedding] = field(init=False)
    shared: bool = field(init=False, default=False)
    sharded: bool = field(init=False)
    stats: tuple[str, ...] = field(init=False, default=("entropy",))
    entropy_grad: bool = field(init=False)
    passes: Passes = field(init=False)

    def __post_init__(self) -> None:
        config = self.plan.recipe.config
        self.networks = {"actor": self.policy.model}
        self.sharded = self.ranks.count > 1 and config.parallel.strategy == "shard"
        self.tables = [] if self.sharded else embeddings(self.policy.model)
        self.stats += ("observation_nll",) if "observation_nll" in self.plan.needs else ()
        self.entropy_grad = config.actor.entropy_coef > 0 or "entropy" in self.plan.needs
        self.tokenizer = self.policy.tokenizer
        self.prompt_format = PromptFormat(self.tokenizer, config.model.chat, config.model.system)
        self.notes += self.policy.notes  # of its loading
        self.policy.stops, self.policy.notes = self.plan.stops, self.notes
        task, name, known = self.plan.task, self.plan.task_name, self.policy.eos_ids
        asked = drawn(task, name, "train")
        self.notes += self.prompt_format.examined(asked, config.model.chat_args)
        if unread := self.prompt_format.unread(asked):
            self.notes.append(unread)
        self.policy.eos_ids = self.prompt_format.ends(task, name, known)
        for i in set(self.policy.eos_ids).difference(known):
            token = self.tokenizer.convert_ids_to_tokens(i)
            self.notes.append(f"responses also end with {token}, the chat template's end of turn")
        self._fit_prompts()
        held = {grad: self.policy.bytes_of_position(grad=grad) for grad in (False, True)}
        self.passes = Passes(self.policy, config.train, held, self.ranks, self.sharded, self.notes)

    def _fit_prompts(self) -> None:
        """Find prompts that are too long for the model, which data tasks may leave out."""
        task, name, config = self.plan.task, self.plan.task_name, self.plan.recipe.config
        limit = max(config.rollout.max_new_tokens, config.eval.max_new_tokens or 0)
        longest = self.policy.limit  # (tokens, what they are called)
        room = None if longest is None else max(0, longest[0] - limit)

        seen, said = 0, time.monotonic()

        def count(prompt: Prompt) -> int:
            nonlocal seen, said
            seen += 1
            if self.ranks.first and time.monotonic() - said > PATIENCE:
                said = time.monotonic()
                say(f"rlzoo: task {name!r}: {seen:,} prompts tokenized so far")
            return len(self.prompt_format.encode(prompt))

        if fit := self.plan.abilities.fit:
            with border(f"task {name!r}: fit"):
                note = fit(count, room)
            self.notes += [note] if note else []
        if longest is None or room is None:
            return
        for split in ("train", "test"):
            prompts = drawn(task, name, split)
            lengths = [len(ids) for ids in self.prompt_format.encode_each(prompts)]
            if max(lengths) > room:
                raise ModelError(
                    f"rollout.max_new_tokens={limit} leaves {room} of {longest[1]} for a prompt; "
                    f"{sum(n > room for n in lengths)} of {len(lengths)} {split} prompts of task "
                    f"{name!r} are longer, up to {max(lengths)} tokens"
                )

    def fit_told(self) -> None:
        """Raise ModelError if prompts with their answers are too long for a privileged critic."""
        if self.policy.limit is None:
            return
        task, name, form = self.plan.task, self.plan.task_name, self.prompt_format
        examples = examples_of(task, name, "train")
        told = form.told({
            "prompts": [form.text(e.prompt) for e in examples],
            "messages": [form.messages(e.prompt) for e in examples],
            "answers": [e.answer for e in examples],
            "prompt_mask": torch.ones(1),
        })  # fmt: skip
        new = self.plan.recipe.config.rollout.max_new_tokens
        if (longest := int(told["prompt_mask"].sum(1).max()) + new) > self.policy.limit[0]:
            raise ModelError(
                f"critic.privileged=answer: with its answer before it, a prompt of task {name!r} "
                f"and rollout.max_new_tokens={new} are {longest} tokens, which exceed "
                f"{self.policy.limit[1]}"
            )

    @property
    def teacher(self) -> Policy | None:
        """The teacher of all prompts whose domain has no teacher of its own."""
        return self.teachers.get(None)

    def add_critic(self, critic: Critic) -> None:
        self.critic, self.networks["critic"] = critic, critic
        self.shared = critic.trunk is None
        self.tables += [] if self.shared or self.sharded else embeddings(critic.trunk)

    @cached_property
    def recomputes(self) -> bool:
        """Whether `old_log_probs` are those of a pass, not of the sampler."""
        policy, rollout = self.policy, self.plan.recipe.config.rollout
        other = policy.halves or policy.sampled_by or rollout.staleness  # halves round differently
        exact = policy.sampled_as_scored and not other
        return rollout.old_log_probs == "recomputed" or (
            rollout.old_log_probs == "auto" and not exact
        )

    def whole(self, needs: Iterable[str]) -> AbstractContextManager:
        """In this context, spread weights of the policy, and of the frozen models among `needs`,
        are whole, so that ranks can sample independently."""
        frozen = {"reference": self.reference, "teacher": self.teacher}
        asked = [self.policy, *(p for name, p in frozen.items() if name in needs)]
        return whole({m: None for p in asked if p is not None for m in p.model.modules()})

    @torch.no_grad()
    def current(self, columns: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The columns of an update that the current policy computes, without a gradient."""
        return self.passes.map(columns, partial(self.policy.log_prob_stats, want=self.stats))
