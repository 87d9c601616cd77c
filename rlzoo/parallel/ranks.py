"""Several processes, one run: each samples and differentiates its share, all hold the same batch.

Started by `accelerate launch -m rlzoo run ...` or `torchrun -m rlzoo run ...`. A step's prompts are
shared out, groups whole; what each rank sampled is joined into one batch that all ranks hold, so
that whitening, aggregation weights, controllers and statistics see all of it and are as in one
process. Then the passes of each mini-batch are shared out, and gradients summed. Only the first
rank writes.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rlzoo.errors import RunError, first_line
from rlzoo.parallel.device import pick_device
from rlzoo.parallel.shard import is_shard


@dataclass(frozen=True)
class Ranks:
    """This process among all of a run. One process alone is the first of one."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def share(self, items: list[Any]) -> list[Any]:
        """This rank's of items that were dealt out in turn."""
        return items[self.index :: self.count]

    def idle(self, n: int) -> int:
        """How many fewer of n items this rank has than the first."""
        return (n + self.count - 1) // self.count - len(range(n)[self.index :: self.count])

    def block(self, n: int) -> range:
        """This rank's of n items in a row."""
        return range(n * self.index // self.count, n * (self.index + 1) // self.count)

    def gather(self, item: Any) -> list[Any]:
        """Every rank's `item`, the first rank's first; tensors come back on the CPU."""
        if self.count == 1:
            return [item]
        found: list[Any] = [None] * self.count
        with _lost():
            torch.distributed.all_gather_object(found, item)
        return found

    def same(self, item: Any) -> Any:
        """The first rank's `item`."""
        return self.gather(item)[0]

    def wait(self) -> None:
        """Until all are here."""
        self.gather(None)

    def sum(self, found: Mapping[str, float]) -> dict[str, float]:
        """Numbers added over ranks, names of any of them."""
        total: dict[str, float] = {}
        for mine in self.gather(dict(found)):
            for name, value in mine.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def sum_gradients(self, networks: Iterable[nn.Module]) -> None:
        """Add up what the ranks' backward passes left in the weights."""
        if self.count == 1:
            return
        for network in networks:
            for weight in network.parameters():
                if weight.requires_grad and not is_shard(weight):  # theirs are summed on the way
                    if weight.grad is None:  # this rank had no row for it
                        weight.grad = torch.zeros_like(weight)
                    with _lost():
                        torch.distributed.all_reduce(weight.grad)


ALONE = Ranks()


@contextmanager
def _lost() -> Any:
    try:
        yield
    except RuntimeError as error:  # of the process group: the other end is gone
        raise RunError(
            "another process of this run is gone; `rlzoo resume RUN` goes on from the last "
            f"checkpoint, with any number of processes ({first_line(error)})"
        ) from None


def open_ranks(device: str) -> Ranks:
    """The ranks of this run, by what the launcher put into the environment."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return ALONE
    from accelerate import PartialState

    state = PartialState(cpu=pick_device(device).type == "cpu")
    return Ranks(state.process_index, state.num_processes)


def check_alike(ranks: Ranks, recipe: str, code: str) -> None:
    """Refuse ranks with another recipe, or other code (its digest), than the first."""
    mine = {
        "recipe": hashlib.sha256(recipe.encode()).hexdigest(),
        "code": code,
        "torch": torch.__version__,
    }
    everybody = ranks.gather(mine)
    for i, other in enumerate(everybody):
        for what, value in other.items():
            if value != everybody[0][what]:
                raise RunError(
                    f"rank {i} has another {what} than rank 0: all processes of a run must be "
                    "started with the same words, in the same environment"
                )
