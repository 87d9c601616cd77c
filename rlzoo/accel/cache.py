"""KV caches for decoding, since those of transformers copy all keys and values for each token.

`Growing` adds a column in place for each token and suits a host that checks every token anyway.
`Fixed` has buffers of constant shape and does not wait for the host. It suits a device, whose work
runs ahead of the host and whose steps can then be captured in a graph. Both start from the cache
that transformers filled with the prompts, and replace its layers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import DynamicLayer

from rlzoo.accel.hf_internals import attention_of, take_over
from rlzoo.errors import ModelError

COLUMNS = 64  # the length of fixed buffers is a multiple of this

Pair = tuple[Tensor, Tensor]


class _Layer(DynamicLayer):
    """Keys and values of one layer (B, heads, N, d); replaces a filled layer."""

    keys: Tensor
    values: Tensor


class GrowingLayer(_Layer):
    """Views of buffers with spare room."""

    room: Pair | None = None  # keys, values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Pair:
        n = self.keys.shape[-2]
        m = n + key_states.shape[-2]
        if self.room is None or self.room[0].shape[-2] < m:
            more = (0, 0, 0, m + m // 2 + 16 - n)
            self.room = F.pad(self.keys, more), F.pad(self.values, more)
        keys, values = self.room
        keys[:, :, n:m], values[:, :, n:m] = key_states, value_states
        self.keys, self.values = keys[:, :, :m], values[:, :, :m]
        return self.keys, self.values


class FixedLayer(_Layer):
    """Whole buffers; a row's mask selects what it sees."""

    at: Tensor  # (1,), the column of the newest token, counted from the row's beginning
    index: Tensor  # (1,), its index in the buffer

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Pair:
        # Under autocast a token's may be of another dtype than the prompt's.
        self.keys.index_copy_(2, self.index, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.index, value_states.to(self.values.dtype))
        return self.keys, self.values

    def get_seq_length(self) -> Any:
        return self.at[0]


class Growing:
    """A cache that has a column for each token.  seen: (B, L), where a row has tokens, not padding.

    every: tokens between two looks at the rows.  leave: rows leave once no more than this share of
    them continues.  unit: the number of rows is a multiple of it.
    """

    every, leave, unit = 1, 0.9, 1

    def __init__(self, model: Any, cache: Any, home: Tensor, seen: Tensor, limit: int):
        self.cache, self.seen = cache, seen
        cache.layers = [
            take_over(GrowingLayer, layer) if type(layer) is DynamicLayer else layer
            for layer in cache.layers
        ]
        self.keep(home)

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows (B',), in this order."""
        for layer in self.cache.layers:
            layer.batch_select_indices(rows)
            layer.room = None  # it was for the former rows
        self.seen = self.seen[rows]
        self.padded = not bool(self.seen.all())

    def advance(self) -> Tensor | None:
        """Add one token; returns each row's mask, or None if rows see everything, which is
        faster."""
        self.seen = torch.cat([self.seen, self.seen.new_ones(len(self.seen), 1)], 1)
        return self.seen if self.padded else None


class Fixed:
    """A cache of a fixed shape, with room ahead.  seen: as above, of all columns there is room for.

    A layer with a sliding window has as many columns as the window is wide, and reuses them in a
    ring: the newest replaces the oldest. Rows leave once half have ended, and the room grows by a
    quarter when it is used up; only then do shapes change.
    """

    every, leave, unit = 16, 0.5, 8

    def __init__(self, model: Any, cache: Any, home: Tensor, seen: Tensor, limit: int):
        config = model.config.get_text_config()
        self.kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(cache.layers)
        if other := sorted(set(self.kinds) - {"full_attention", "sliding_attention"}):
            raise ModelError(f"layers of {', '.join(other)}")
        if (kind := attention_of(config)) not in ("sdpa", "eager"):
            raise ModelError(f"{kind} attention")
        self.cache, self.dtype, self.seen = cache, model.dtype, seen.bool()
        self.columns = seen.shape[1]  # in use once every response has reached its limit
        self.most = self.columns + limit
        self.at = torch.full((1,), self.columns - 1, device=seen.device)
        self.windows = [getattr(layer, "sliding_window", self.most) for layer in cache.layers]
        # The column of the row that is the first of a layer: windows have let go of some.
        self.first = [self.columns - layer.keys.shape[2] for layer in cache.layers]
        cache.layers = [take_over(FixedLayer, layer) for layer in cache.layers]
        for layer in cache.layers:
            layer.at = self.at
        self.keep(home)

    def keep(self, rows: Tensor) -> None:
        self.seen = self.seen[rows]
        for layer in self.cache.layers:  # one at a time: what it was before is gone by then
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]

    def reserve(self, tokens: int) -> bool:
        """Make room for `tokens` more tokens; returns whether shapes changed."""
        self.columns += tokens
        if self.columns <= self.seen.shape[1]:
            return False
        width = min(self.columns + self.columns // 4, self.most)
        width = -(-width // COLUMNS) * COLUMNS
        self.seen = F.pad(self.seen, (0, width - self.seen.shape[1]))
        for layer, window in zip(self.cache.layers, self.windows, strict=True):
            room = min(window, width)
            more = (0, 0, 0, room - layer.keys.shape[2])
            if more[-1] > 0:
                layer.keys, layer.values = F.pad(layer.keys, more), F.pad(layer.values, more)
        return True

    def advance(self) -> Tensor | dict[str, Tensor]:
        self.at.add_(1)
        self.seen.index_fill_(1, self.at, True)
        found: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        masks: dict[str, Tensor] = {}
        for kind, layer, first in zip(self.kinds, self.cache.layers, self.first, strict=True):
            room = layer.keys.shape[2]
            if (room, first) not in found:
                found[room, first] = self._view(room, first)
            layer.index, masks[kind] = found[room, first]
        return masks if len(masks) > 1 else masks.popitem()[1]

    def _view(self, room: int, first: int) -> tuple[Tensor, Tensor]:
        """The newest column's index in a layer of `room` columns, (1,), and each row's mask, (B,
        1, 1, room), 0 or -inf."""
        index = (self.at - first) % room
        if room == self.seen.shape[1]:
            seen = self.seen
        else:
            held = self.at - (index - torch.arange(room, device=self.at.device)) % room
            seen = self.seen.index_select(1, held.clamp(min=0)) & (held >= 0)
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=seen.device)
        return index, mask.masked_fill_(~seen, -torch.inf)[:, None, None]
