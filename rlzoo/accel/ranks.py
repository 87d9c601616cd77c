"""Several processes, one run: each samples and differentiates its share, all hold the same batch.

Started by `accelerate launch -m rlzoo run ...` or `torchrun -m rlzoo run ...`. A step's prompts
are divided among the ranks in whole groups. The samples are joined into one batch on all ranks, so
that whitening, aggregation weights, controllers and statistics are the same as in one process.
Then the passes of each mini-batch are divided, and gradients are summed. Only the first rank
writes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from rlzoo.accel.device import pick_device
from rlzoo.accel.shard import is_shard
from rlzoo.errors import RunError, first_line, need

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among all processes of a run; a single process has rank 0 of 1."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def idle(self, n: int) -> int:
        """How many fewer of n items, dealt out in turn, this rank has than the first rank."""
        return (n + self.count - 1) // self.count - len(range(n)[self.index :: self.count])

    def block(self, n: int) -> range:
        """This rank's share of n consecutive items."""
        return range(n * self.index // self.count, n * (self.index + 1) // self.count)

    def gather(self, item: T) -> list[T]:
        """Every rank's `item`, the first rank's first, once all ranks are here; tensors come back
        on the CPU."""
        if self.count == 1:
            return [item]
        items = [item] * self.count
        with _lost():
            torch.distributed.all_gather_object(items, item)
        return items

    def sum_gradients(self, networks: Iterable[nn.Module]) -> None:
        """Sum the gradients of all ranks, in place."""
        with _lost():
            sent = []
            for weight in (w for network in networks for w in network.parameters()):
                if weight.requires_grad and not is_shard(weight):  # theirs are summed on the way
                    if weight.grad is None:  # this rank had no row for it
                        weight.grad = torch.zeros_like(weight)
                    sent.append(torch.distributed.all_reduce(weight.grad, async_op=True))
            for message in sent:  # they are under way at the same time
                message.wait()


ALONE = Ranks()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of the process group: the other end is gone
        raise RunError(
            "another process of this run has ended; use `rlzoo resume RUN` to continue from the "
            f"last checkpoint with any number of processes ({first_line(error)})"
        ) from None


def open_ranks(device: str) -> Ranks:
    """The ranks of this run, according to the launcher's environment variables."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return ALONE
    need("accelerate", f"{os.environ['WORLD_SIZE']} processes of one run")
    from accelerate import PartialState

    state = PartialState(cpu=pick_device(device).type == "cpu")
    return Ranks(state.process_index, state.num_processes)


def check_alike(ranks: Ranks, recipe: str, code: Mapping[str, Any]) -> None:
    """Raise RunError if a rank has a different recipe or code from the first rank."""
    everybody = ranks.gather({"recipe": recipe, **code})
    for i, other in enumerate(everybody):
        for what, value in other.items():
            if value != everybody[0][what]:
                raise RunError(
                    f"rank {i} has a different {what} from rank 0; start all processes of a run "
                    "with the same command in the same environment"
                )
