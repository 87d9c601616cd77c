"""Counter-based randomness: a number is a function of (seed, stream, step, row, position).

No generator carries state from step to step, so resuming, re-batching and several processes draw
the same numbers.
"""

import zlib

import numpy as np
import torch
from torch import Tensor


def _key(seed: int, stream: str, step: int) -> np.ndarray:
    """Philox's 128-bit key for a rollout."""
    return np.array([seed << 32 | zlib.crc32(stream.encode()), step], dtype=np.uint64)


def uniforms(seed: int, stream: str, step: int, rows: Tensor, length: int) -> Tensor:
    """Uniform numbers in [0, 1) for rows (B,) int64 and `length` positions, (B, T) float64.

    Philox (Salmon et al. 2011): the row is the upper half of the counter, so a row's numbers do
    not depend on the other rows, nor a position's on the length.
    """
    key = _key(seed % 2**32, stream, step)
    out = np.empty((len(rows), length))
    for i, row in enumerate(rows.tolist()):
        out[i] = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, row, 0])).random(
            length
        )
    return torch.from_numpy(out)


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """A separate torch generator (CPU) for (seed, stream, step)."""
    state = np.random.SeedSequence([seed, zlib.crc32(stream.encode()), step]).generate_state(2)
    return torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)
