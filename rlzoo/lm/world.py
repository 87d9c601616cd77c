"""A run's models, and how rows go through them: in how many passes, and on which rank."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo.errors import RlzooError
from rlzoo.lm.critic import Critic
from rlzoo.lm.layout import lengths, pack
from rlzoo.lm.policy import Policy
from rlzoo.lm.prompts import Prompt, PromptFormat
from rlzoo.mdp.batch import take
from rlzoo.parallel.ranks import ALONE, Ranks
from rlzoo.parallel.shard import whole
from rlzoo.recipe.plan import Plan


@dataclass
class World:
    """A run's plan and models. `tokens` meters every token generated through it."""

    plan: Plan
    policy: Policy
    reference: Policy | None = None
    critic: Critic | None = None
    seed: int = 0
    tokens: int = 0
    kept: dict[str, Tensor] | None = None  # a forward pass that the update need not repeat
    room: float = 1.0  # the share of a pass's usual size that fits into memory
    ranks: Ranks = ALONE
    notes: list[str] = field(default_factory=list)  # what the run's reader should know
    _encoded: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy.stops = self.plan.stops

    @property
    def tokenizer(self) -> Any:
        return self.policy.tokenizer

    @cached_property
    def form(self) -> PromptFormat:
        model = self.plan.recipe.config.model
        return PromptFormat(self.tokenizer, model.chat, model.system)

    def encode(self, prompt: Prompt) -> list[int]:
        text = self.form.text(prompt)
        if text not in self._encoded:
            self._encoded[text] = self.form.encode(prompt)
        return self._encoded[text]

    @property
    def shared(self) -> bool:
        """Whether the critic is a head on the policy's trunk."""
        return self.critic is not None and self.critic.trunk is None

    @property
    def sharded(self) -> bool:
        """Whether weights are spread over ranks."""
        return self.ranks.count > 1 and self.plan.recipe.config.parallel.strategy == "shard"

    def sampling(self, needs: Iterable[str] = ()) -> AbstractContextManager:
        """Within, ranks may sample apart from each other: weights that are spread are whole."""
        if not self.sharded:
            return nullcontext()
        asked = [self.policy, *([self.reference] if "reference" in needs else [])]
        return whole({m: None for p in asked if p is not None for m in p.model.modules()})

    def networks(self) -> dict[str, nn.Module]:
        """What is trained, by the name of its optimizer."""
        found: dict[str, nn.Module] = {"actor": self.policy.model}
        return found if self.critic is None else found | {"critic": self.critic}

    def trains_actor(self, step: int) -> bool:
        return step >= self.plan.recipe.config.train.critic_warmup

    def forward(
        self, columns: Mapping[str, Any], *, actor: bool = True, critic: bool = True
    ) -> dict[str, Tensor]:
        """What an update differentiates: `log_probs`, `entropy`, and the critic's `prediction`."""
        config = self.plan.recipe.config
        critic = critic and self.critic is not None
        both = actor and critic and self.shared
        out: dict[str, Tensor] = {}
        if actor:
            entropy_grad = config.actor.entropy_coef > 0 or "entropy" in self.plan.needs
            want = ("entropy", "values") if both else ("entropy",)
            out = self.policy.score(columns, want=want, entropy_grad=entropy_grad)
        if critic:
            assert self.critic is not None
            out["prediction"] = out.pop("values") if both else self.critic.predict(columns)
        return out

    def parts(self, columns: Mapping[str, Any], *, grad: bool = False) -> list[Tensor]:
        """The rows (R,) of each pass over `columns`: sorted by length, as many as fit."""
        train = self.plan.recipe.config.train
        rows = len(columns["response_mask"])
        if grad and train.microbatch:
            order = pack(columns, 1)
            size = max(1, int(train.microbatch * self.room))
            return list(torch.cat(order).split(size)) if order else []
        budget = train.token_budget if grad else None
        if budget is None:
            budget = self.policy.room(grad=grad)
        else:
            _refuse_short_budget(columns, budget)
        budget = int(budget * self.room)
        if self.ranks.count > 1:  # something to do for each
            positions = sum(int(x.sum()) for x in lengths(columns))
            budget = min(budget, positions // self.ranks.count)
        parts = pack(columns, max(1, budget), trees=self.policy.trees(columns))
        # A single pass keeps the order of its rows: nothing need be sorted back.
        return [torch.arange(rows, device=parts[0].device)] if len(parts) == 1 else parts

    def passes(
        self,
        columns: Mapping[str, Any],
        parts: list[Tensor],
        function: Callable[[Mapping[str, Any]], Tensor],
    ) -> Tensor:
        """`function` of all rows, (B, ...), a pass for each of `parts`; ranks share them."""
        done = [function(take(columns, part)) for part in self.ranks.share(parts)]
        if self.sharded and self.ranks.idle(len(parts)):  # passes are collectives
            function(take(columns, parts[0]))
        if self.ranks.count > 1:
            shares = self.ranks.gather([x.cpu() for x in done])
            done = [x.to(self.policy.device) for share in shares for x in share]
            parts = [part for i in range(self.ranks.count) for part in parts[i :: self.ranks.count]]
        return torch.cat(done)[torch.cat(parts).argsort()]

    def fitted(self, attempt: Callable[[], Any]) -> Any:
        """What `attempt` gives; should memory run out, once in a run it is made again, with half
        the rows in a pass from then on. How rows are cut changes no gradient."""
        try:
            return attempt()
        except RuntimeError as error:
            # Ranks would no longer agree on who does which pass.
            if not _out_of_memory(error) or self.room < 1 or self.ranks.count > 1:
                raise
        # Not in `except`: there the traceback holds on to what the failed pass allocated.
        self.room, self.kept = 0.5, None
        self.notes.append("out of memory; going on with half the rows in a pass (same gradient)")
        if self.policy.device.type == "cuda":
            torch.cuda.empty_cache()
        return attempt()


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _refuse_short_budget(columns: Mapping[str, Any], budget: int) -> None:
    prompt, response = lengths(columns)
    longest = max((prompt + response).tolist(), default=0)
    if budget < longest:
        raise RlzooError(
            f"train.token_budget: {budget} positions are less than the longest row, which has "
            f"{longest}"
        )
