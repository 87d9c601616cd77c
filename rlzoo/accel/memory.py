"""How much memory a pass may use (limited by a CPU's cache or a device's free memory), and the
precision in which a policy samples."""

import ctypes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlzoo.recipe.keys import Config

USUAL = 2**34  # bytes free on a device that does not report them
MAPPED = 2**25  # bytes of a tensor on a CPU that glibc always requests from the system


@dataclass(frozen=True)
class Room:
    """activations: bytes of them in a pass.  kept: in all passes of an update, where these are made
    while columns are read, and wait for the losses.

    positions: a pass may always have this many: with fewer, reading the weights dominates.

    logits: how many are held at a time, in float32.  block: how many of those are worked on at a
    time.
    """

    activations: int
    kept: int
    logits: int
    block: int
    positions: int = 1


CPU = Room(activations=2**26, kept=2**27, logits=2**23, block=2**20, positions=220)


def room(device: Any, free: int | None = None) -> Room:
    """The memory that a pass may use on a device (a torch.device or its type).

    Off the CPU half of the `free` bytes (measured where they are not given) is for activations,
    and a sixteenth for logits, of which up to three copies are made: in one block, since each
    operation is a launch. Only the two leading bits of `free` count, so that a resumed run with
    slightly different free memory splits its rows as before.
    """
    if getattr(device, "type", device) == "cpu":
        return CPU
    free = free_bytes(device) if free is None else free
    spare = max(0, free.bit_length() - 2)
    free = free >> spare << spare
    return Room(free // 2, free // 2, free // 64, free // 64)


def free_bytes(device: Any) -> int:
    """The memory available for new tensors on this device: free memory, plus what torch's
    allocator holds but does not use."""
    import torch

    if getattr(device, "type", device) != "cuda":
        return USUAL
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def make_room(like: Any) -> None:
    """Before a tensor as large as `like` is made on a CPU: the system gets back what was freed, if
    glibc would hold it next to such a tensor."""
    if like.device.type == "cpu" and like.nbytes >= MAPPED and sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others have none
        if trim is not None:
            trim(0)


def activations(hidden: int, inner: int, layers: int, *, grad: bool, recompute: bool) -> int:
    """Floats that a pass holds for each position: those of all layers where there is a gradient,
    of one if there is none; where they are computed again, of one and each layer's input."""
    of_layer = 10 * hidden + 4 * inner
    if not grad:
        return of_layer
    return layers * hidden + of_layer if recompute else layers * of_layer


def sampling_dtypes(config: "Config", device: str) -> tuple[str | None, str | None]:
    """The dtype of sampling (`rollout.dtype`), None for that of the policy's passes; and the dtype
    of the copy that samples, None where the policy itself samples."""
    model, dtype = config.model, None
    if config.rollout.dtype != "auto":
        dtype = str(config.rollout.dtype)
    elif device == "cuda" and model.autocast != "none" and model.dtype != "float64":
        dtype = "bfloat16"
    return dtype, dtype if dtype != model.dtype or model.lora.rank else None
