"""A run's networks: the policy, its frozen reference, a frozen teacher, the critic."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo.accel.passes import Passes
from rlzoo.accel.ranks import ALONE, Ranks
from rlzoo.accel.shard import whole
from rlzoo.errors import ModelError
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy
from rlzoo.lm.prompts import Prompt, PromptFormat, drawn
from rlzoo.ops import on_host
from rlzoo.plugin.border import border
from rlzoo.recipe.plan import Plan


class Meter:
    """`tokens`: the number generated so far; evaluations have a meter of their own."""

    def __init__(self) -> None:
        self.tokens = 0

    def count(self, response_mask: Tensor) -> None:
        """The tokens that the policy chose: response_mask (B, T)."""
        self.tokens += int(on_host(response_mask).sum())

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
    passes: Passes = field(init=False)

    def __post_init__(self) -> None:
        self.notes += self.policy.notes  # of its loading
        self.policy.stops, self.policy.notes = self.plan.stops, self.notes
        train = self.plan.recipe.config.train
        self.notes += self.prompt_format.note(self.plan.task, self.plan.task_name)
        known = self.policy.eos_ids
        self.policy.eos_ids = self.prompt_format.ends(self.plan.task, self.plan.task_name, known)
        for i in set(self.policy.eos_ids).difference(known):
            token = self.tokenizer.convert_ids_to_tokens(i)
            self.notes.append(f"responses also end with {token}, the chat template's end of turn")
        self._fit_prompts()
        self.passes = Passes(self.policy, train, self.ranks, self.sharded, self.notes)

    def _fit_prompts(self) -> None:
        """Find prompts that are too long for the model, which data tasks may leave out."""
        task, name, config = self.plan.task, self.plan.task_name, self.plan.recipe.config
        limit = max(config.rollout.max_new_tokens, config.eval.max_new_tokens or 0)
        longest = self.policy.limit  # (tokens, what they are called)
        room = None if longest is None else max(0, longest[0] - limit)

        def count(prompt: Prompt) -> int:
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

    @property
    def teacher(self) -> Policy | None:
        """The teacher of all prompts whose domain has no teacher of its own."""
        return self.teachers.get(None)

    @property
    def tokenizer(self) -> Any:
        return self.policy.tokenizer

    @cached_property
    def prompt_format(self) -> PromptFormat:
        model = self.plan.recipe.config.model
        return PromptFormat(self.tokenizer, model.chat, model.system)

    @property
    def shared(self) -> bool:
        """Whether the critic is a head on the policy's trunk."""
        return self.critic is not None and self.critic.trunk is None

    @property
    def sharded(self) -> bool:
        """Whether weights are spread over ranks."""
        return self.ranks.count > 1 and self.plan.recipe.config.parallel.strategy == "shard"

    def sampling(self, needs: Iterable[str] = ()) -> AbstractContextManager:
        """In this context, spread weights are whole, so that ranks can sample independently."""
        if not self.sharded:
            return nullcontext()
        frozen = {"reference": self.reference, "teacher": self.teacher}
        asked = [self.policy, *(p for name, p in frozen.items() if name in needs)]
        return whole({m: None for p in asked if p is not None for m in p.model.modules()})

    @torch.no_grad()
    def current(self, columns: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """The columns of `forward` that the current policy computes, without a gradient."""
        return self.passes.map(columns, partial(self._stats, want=("entropy",)))

    @property
    def _stats(self) -> Callable[..., dict[str, Tensor]]:
        seen = "observation_nll" in self.plan.needs
        return self.policy.with_observations if seen else self.policy.log_prob_stats

    def networks(self) -> dict[str, nn.Module]:
        """The trained modules, by the name of their optimizer."""
        actor: dict[str, nn.Module] = {"actor": self.policy.model}
        return actor if self.critic is None else actor | {"critic": self.critic}

    def forward(
        self, columns: Mapping[str, Any], *, actor: bool = True, critic: bool = True
    ) -> dict[str, Tensor]:
        """The differentiable outputs of an update: `log_probs`, `entropy`, `observation_nll` if
        the plan needs it, and the critic's `prediction`."""
        critic = critic and self.critic is not None
        both = actor and critic and self.shared
        out: dict[str, Tensor] = {}
        if actor:
            coef = self.plan.recipe.config.actor.entropy_coef
            want = ("entropy", "values") if both else ("entropy",)
            out = self._stats(
                columns, want=want, entropy_grad=coef > 0 or "entropy" in self.plan.needs
            )
        if critic:
            assert self.critic is not None
            out["prediction"] = out.pop("values") if both else self.critic.predict(columns)
        return out
