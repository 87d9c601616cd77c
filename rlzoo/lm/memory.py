"""How much memory a pass may take."""

PASS_BYTES = {"cpu": 2**27, "cuda": 2**33}  # of activations in a pass
CHUNK = {"cpu": 2**23, "cuda": 2**28}  # logits held at a time: 32 MiB, 1 GiB in float32


def activations(hidden: int, inner: int, layers: int, *, grad: bool, recompute: bool) -> int:
    """Floats that a pass holds for each position: those of all layers where there is a gradient,
    of one where there is none; where they are computed again, of one and each layer's input."""
    of_layer = 10 * hidden + 4 * inner
    if not grad:
        return of_layer
    return layers * hidden + of_layer if recompute else layers * of_layer
