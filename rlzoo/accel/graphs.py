"""CUDA graphs: a step that is always the same is recorded once, and launched as one.

No recording has been made on a GPU yet. Tests without one check that the step never waits
for the host and that its shapes stay (`tests/invariants/test_static_cache.py`).
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlzoo.errors import ModelError, first_line
from rlzoo.plugin.border import out_of_memory

Step = Callable[[], None]

FAILED = "no CUDA graph could be captured"  # how that note begins

# Their result, or its shape, is a value that the host must have first; a constant is the host's.
WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "multinomial", "_coalesce"),
    *("repeat_interleave", "lift_fresh"),
}


class Graph:
    """Runs a step the first time, which makes libraries ready and shows whether it can be recorded;
    records it the second time, if on a GPU, and launches the record from then on.

    Raises ModelError for a step that makes the host wait. The tensors of its inputs and outputs
    must not change. It does not hold the step. notes: gains a line where a recording fails; steps
    run unrecorded then.
    """

    def __init__(self, device: torch.device, notes: list[str]):
        # Autocast keeps casts that it made: a record would read what is gone when it is launched.
        self.records = device.type == "cuda" and not torch.is_autocast_enabled("cuda")
        self.device, self.notes, self.warm = device, notes, False
        self.graph: Any = None

    def __call__(self, step: Step) -> None:
        if not self.warm:
            with Waits() as waits:
                step()
            if waits.found:
                raise ModelError(f"its steps make the host wait ({', '.join(waits.found)})")
            self.warm = True
            return
        if self.records and self.graph is None:
            self._record(step)
        if self.graph is None:
            step()
        else:
            self.graph.replay()

    def _record(self, step: Step) -> None:
        """Record the step, or note why it cannot be recorded. Out of memory propagates: fewer rows
        may fit."""
        try:
            self.graph = recorded(step, self.device)
        except RuntimeError as error:
            found: BaseException | None = error
            while found is not None and not out_of_memory(found):
                found = found.__context__  # the capture's end raises over what was raised within
            if found is not None:
                raise torch.OutOfMemoryError("out of memory while capturing a step") from None
            self.records = False
            note = f"{FAILED} ({first_line(error)}); each operation is launched separately"
            if not any(known.startswith(FAILED) for known in self.notes):
                self.notes.append(note)


def recorded(step: Step, device: torch.device) -> Any:
    """A CUDA graph of `step` on this very device, whichever is the current one."""
    graph = torch.cuda.CUDAGraph()
    collects = gc.isenabled()
    gc.disable()  # it might destroy another graph, which ends the capture
    try:
        # The outer stream is put back even where the capture's end raises.
        with (
            torch.cuda.device(device),
            torch.cuda.stream(torch.cuda.current_stream(device)),
            torch.cuda.graph(
                graph,
                stream=torch.cuda.Stream(device),
                capture_error_mode="thread_local",  # other threads may allocate meanwhile
            ),
        ):
            step()
    finally:
        if collects:
            gc.enable()
    return graph


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
