"""A KV cache that grows in place: transformers' own copies all keys and values for each token."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer (B, heads, L, d): views of buffers that have room ahead."""

    def __init__(self, layer: DynamicLayer):
        super().__init__()
        self.__dict__.update(layer.__dict__)
        self._room: Any = None  # (keys, values)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        assert self.keys is not None
        assert self.values is not None
        n = self.keys.shape[-2]
        m = n + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < m:
            self._room = _longer(self.keys, m + m // 2 + 16), _longer(self.values, m + m // 2 + 16)
        keys, values = self._room
        keys[:, :, n:m], values[:, :, n:m] = key_states, value_states
        self.keys, self.values = keys[:, :, :m], values[:, :, :m]
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._room = None


def _longer(x: Tensor, length: int) -> Tensor:
    """x (B, heads, L, d) at the beginning of a buffer (B, heads, length, d)."""
    room = x.new_empty(*x.shape[:2], length, x.shape[-1])
    room[:, :, : x.shape[-2]] = x
    return room


def let_grow(cache: Any) -> None:
    """Make the plain layers of a cache that has been filled ones that grow in place."""
    cache.layers = [
        GrowingLayer(layer) if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
