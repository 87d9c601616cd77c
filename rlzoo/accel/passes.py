"""Splits rows into forward passes, and among the ranks if there are several.

The split into passes changes neither the results nor the gradients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from rlzoo.accel.layout import lengths, pack
from rlzoo.accel.memory import room
from rlzoo.accel.ranks import ALONE, Ranks
from rlzoo.errors import RlzooError, out_of_memory
from rlzoo.mdp.batch import take
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.keys import Train

T = TypeVar("T")


class Sized(Protocol):
    """The part of a policy (`rlzoo.lm.policy`) used here: its rows' place and layout."""

    @property
    def device(self) -> torch.device: ...
    @property
    def no_trees(self) -> str: ...
    def bytes_of_position(self, *, grad: bool) -> int: ...


@dataclass
class Passes:
    """train: the recipe's section.

    collective: weights are spread over ranks, so that all of them make every pass together.
    notes: gain a line when memory runs out.
    scale: the share of a pass's usual size that fits into memory.
    """

    train: Train
    ranks: Ranks = ALONE
    collective: bool = False
    notes: list[str] = field(default_factory=list)
    scale: float = 1.0

    def parts(self, policy: Sized, columns: Columns, *, grad: bool = False) -> list[Tensor]:
        """The rows (R,), of the host's, of each pass of `policy` over `columns`: sorted by length,
        as many as fit into the device's `room`."""
        if grad and self.train.microbatch:
            order = pack(columns, 1)
            size = max(1, int(self.train.microbatch * self.scale))
            return list(torch.cat(order).split(size)) if order else []
        budget = self.train.token_budget if grad else None
        if budget is None:
            given = room(policy.device)
            held = policy.bytes_of_position(grad=grad)
            budget = max(given.positions, given.activations // held)
        else:
            _refuse_short_budget(columns, budget)
        budget = int(budget * self.scale)
        if self.ranks.count > 1:  # something to do for each
            positions = sum(int(x.sum()) for x in lengths(columns))
            budget = min(budget, positions // self.ranks.count)
            if policy.device.type != "cpu":  # they may not have the same memory free
                budget = min(self.ranks.gather(budget))
        parts = pack(columns, max(1, budget), trees=not policy.no_trees)
        # A single pass keeps the order of its rows: nothing need be sorted back.
        return [torch.arange(len(parts[0]))] if len(parts) == 1 else parts

    def to_keep(self, policy: Sized, columns: Columns) -> list[Tensor]:
        """The rows of each pass of an update, if all passes may be held at once. None of them if
        the recipe limits memory, or if memory ran out before."""
        parts = self.parts(policy, columns, grad=True)
        if len(parts) == 1:
            return parts
        positions = sum(int(x.sum()) for x in lengths(columns))
        fits = positions * policy.bytes_of_position(grad=True) <= room(policy.device).kept
        return parts if fits and self.train.token_budget is None and self.scale == 1 else []

    def map(
        self,
        policy: Sized,
        columns: Columns,
        function: Callable[[Columns], Mapping[str, Tensor]],
    ) -> Mapping[str, Tensor]:
        """`function` of all rows, tensors (B, ...) by name, in as many passes as memory needs."""
        return self.retry(lambda: self.over(columns, self.parts(policy, columns), function))

    def over(
        self,
        columns: Columns,
        parts: list[Tensor],
        function: Callable[[Columns], Mapping[str, Tensor]],
    ) -> Mapping[str, Tensor]:
        """`function` of all rows, tensors (B, ...) by name, a pass for each of `parts`; ranks share
        them. A single part has all rows in their order."""
        if len(parts) == 1:
            return function(columns)
        alone = self.ranks.count == 1
        mine = parts if alone else self.ranks.share(parts)
        done = [function(take(columns, part)) for part in mine]
        if not alone:
            if self.collective and self.ranks.idle(len(parts)):
                function(take(columns, parts[0]))
            shares = self.ranks.gather([{n: x.cpu() for n, x in out.items()} for out in done])
            device = columns["response_ids"].device
            done = [{n: x.to(device) for n, x in out.items()} for share in shares for out in share]
            parts = [part for i in range(self.ranks.count) for part in parts[i :: self.ranks.count]]
        back = torch.cat(parts).argsort()
        return {name: torch.cat([out[name] for out in done])[back] for name in done[0]}

    def retry(self, attempt: Callable[[], T], release: Callable[[], None] = lambda: None) -> T:
        """The result of `attempt`. If memory runs out, halve the pass size and try again.

        release: frees what was kept for the attempt and can be recomputed.
        """
        try:
            return attempt()
        except RuntimeError as error:
            # Ranks would no longer agree on who does which pass.
            if not out_of_memory(error) or self.scale < 1 or self.ranks.count > 1:
                raise
        # Not in `except`: there the traceback holds on to what the failed pass allocated.
        self.scale = 0.5
        release()
        self.notes.append("out of memory; continuing with half the rows per pass (same gradient)")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return attempt()


def _refuse_short_budget(columns: Columns, budget: int) -> None:
    prompt, response = lengths(columns)
    longest = max((prompt + response).tolist(), default=0)
    if budget < longest:
        raise RlzooError(
            f"train.token_budget: {budget} positions cannot hold the longest row ({longest})"
        )
