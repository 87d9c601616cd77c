"""Counter-based randomness: a number is a function of (seed, stream, step, row, position).

No generator carries state from step to step, so resuming, re-batching and several processes draw
the same numbers.
"""

import zlib

import numpy as np
import torch
from torch import Tensor


def uniforms(seed: int, stream: str, step: int, rows: Tensor, length: int) -> Tensor:
    """Uniform numbers in [0, 1) for rows (B,) int64 and `length` positions, (B, T) float64.

    Philox (Salmon et al. 2011): its 128-bit key names a rollout, and the row is the upper half of
    the counter, so a row's numbers do not depend on the other rows, nor a position's on the length.
    """
    key = np.array([seed % 2**32 << 32 | zlib.crc32(stream.encode()), step], dtype=np.uint64)
    streams = [np.random.Philox(key=key, counter=[0, 0, row, 0]) for row in rows.tolist()]
    drawn = [np.random.Generator(stream).random(length) for stream in streams]
    return torch.from_numpy(np.array(drawn).reshape(len(rows), length))


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """A separate torch generator (CPU) for (seed, stream, step)."""
    state = np.random.SeedSequence([seed, zlib.crc32(stream.encode()), step]).generate_state(2)
    return torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)
