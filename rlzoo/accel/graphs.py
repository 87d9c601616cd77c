"""CUDA graphs: a step that is always the same is recorded once, and launched as one.

No recording has been made on a GPU yet. What can be held without one is: that the step asks the
host for nothing and that its shapes stay (`tests/invariants/test_static_cache.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlzoo.errors import ModelError

Step = Callable[[], None]

# Their result, or its shape, is a value that the host must have first; a constant is the host's.
WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "multinomial", "_coalesce"),
    *("repeat_interleave", "lift_fresh"),
}


class Graph:
    """Runs `step` the first time, which makes libraries ready and shows whether it can be recorded;
    records it the second time, if on a GPU, and launches the record from then on.

    Raises ModelError for a step that makes the host wait. What it reads and writes must stay.
    """

    def __init__(self, step: Step, device: torch.device):
        # Autocast keeps casts that it made: a record would read what is gone when it is launched.
        self.records = device.type == "cuda" and not torch.is_autocast_enabled("cuda")
        self.step, self.warm = step, False
        self.graph: Any = None

    def __call__(self) -> None:
        if not self.warm:
            with Waits() as waits:
                self.step()
            if waits.found:
                raise ModelError(f"its steps make the host wait ({', '.join(waits.found)})")
            self.warm = True
        elif not self.records:
            self.step()
        else:
            if self.graph is None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):  # records only
                    self.step()
                self.graph = graph
            self.graph.replay()


class Waits(TorchDispatchMode):
    """found: operations within for which the host waits, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence = (), kwargs: Mapping | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if waits(name, args, out) and name not in self.found:
            self.found.append(name)
        return out


def waits(name: str, args: Sequence, out: Any) -> bool:
    """Whether the host waits for an operation, or a device for the host."""
    if name in WAITING:
        return True
    tensors = [x for x in tree_leaves((args, out)) if isinstance(x, torch.Tensor)]
    if name in ("index", "index_put", "index_put_"):  # as many as there are True
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    return name in ("_to_copy", "copy_") and len({x.device.type for x in tensors}) > 1
