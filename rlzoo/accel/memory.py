"""How much memory a pass may use (limited by a CPU's cache or a device's free memory), and the
precision in which a policy samples."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlzoo.recipe.keys import Config

USUAL = 2**34  # bytes free on a device that does not report them


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


def activations(hidden: int, inner: int, layers: int, *, grad: bool, recompute: bool) -> int:
    """Floats that a pass holds for each position: those of all layers where there is a gradient,
    of one if there is none; where they are computed again, of one and each layer's input."""
    of_layer = 10 * hidden + 4 * inner
    if not grad:
        return of_layer
    return layers * hidden + of_layer if recompute else layers * of_layer


def sampling_dtype(config: "Config", device: str) -> str | None:
    """The dtype of sampling (`rollout.dtype`); None: that of the policy's passes."""
    if config.rollout.dtype != "auto":
        return str(config.rollout.dtype)
    half = device == "cuda" and config.model.autocast != "none"
    return "bfloat16" if half and config.model.dtype != "float64" else None


def sampling_copy(config: "Config", device: str) -> str | None:
    """The dtype of the copy that samples; None: the policy itself samples."""
    dtype = sampling_dtype(config, device)
    return dtype if dtype != config.model.dtype or config.model.lora.rank else None
