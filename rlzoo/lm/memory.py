"""How much memory a pass may take, and what a policy samples in."""

from typing import Any

PASS_BYTES = {"cpu": 2**27, "cuda": 2**33}  # of activations in a pass
CHUNK = {"cpu": 2**23, "cuda": 2**28}  # logits held at a time: 32 MiB, 1 GiB in float32


def activations(hidden: int, inner: int, layers: int, *, grad: bool, recompute: bool) -> int:
    """Floats that a pass holds for each position: those of all layers where there is a gradient,
    of one where there is none; where they are computed again, of one and each layer's input."""
    of_layer = 10 * hidden + 4 * inner
    if not grad:
        return of_layer
    return layers * hidden + of_layer if recompute else layers * of_layer


def sampling_dtype(config: Any, device: str) -> str | None:
    """What sampling computes in (`rollout.dtype`); None: in what the policy's passes do."""
    if config.rollout.dtype != "auto":
        return str(config.rollout.dtype)
    half = device == "cuda" and config.model.autocast != "none"
    return "bfloat16" if half and config.model.dtype != "float64" else None


def sampling_copy(config: Any, device: str) -> str | None:
    """The dtype of a copy of the policy that samples; None: the policy does it itself."""
    dtype = sampling_dtype(config, device)
    return dtype if dtype != config.model.dtype or config.model.lora.rank else None
