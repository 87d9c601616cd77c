"""Decoding of constant shape, for a device: a cache that does not wait for the host, whose steps a
CUDA graph records once and launches as one.

No recording has been made on a GPU yet. Tests without one check that the step never waits
for the host and that its shapes stay (`tests/invariants/test_static_cache.py`).
"""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import DynamicLayer

from rlzoo.accel.hf_internals import attention_of, take_over
from rlzoo.errors import ModelError, first_line, out_of_memory

COLUMNS = 64  # the length of buffers is a multiple of this

Step = Callable[[], None]

FAILED = "no CUDA graph could be captured"  # how that note begins


class FixedLayer(DynamicLayer):
    """Keys and values of one layer (B, heads, N, d): whole buffers; a row's mask selects what it
    sees."""

    keys: Tensor
    values: Tensor
    at: Tensor  # (1,), the column of the newest token, counted from the row's beginning
    index: Tensor  # (1,), its index in the buffer

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any):
        # Under autocast a token's may be of another dtype than the prompt's.
        self.keys.index_copy_(2, self.index, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.index, value_states.to(self.values.dtype))
        return self.keys, self.values

    def get_seq_length(self) -> Any:
        return self.at[0]


class Fixed:
    """A cache of a fixed shape, with room ahead.  seen: (B, L), of all columns there is room for,
    where a row has tokens, not padding.

    A layer with a sliding window has as many columns as that is wide, as a ring. Shapes change only
    where half the rows have ended, and where the room is used up: it grows by a quarter.
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
        views: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        masks: dict[str, Tensor] = {}
        for kind, layer, first in zip(self.kinds, self.cache.layers, self.first, strict=True):
            room = layer.keys.shape[2]
            if (room, first) not in views:
                views[room, first] = self._view(room, first)
            layer.index, masks[kind] = views[room, first]
        return masks if len(masks) > 1 else masks.popitem()[1]

    def _view(self, room: int, first: int) -> tuple[Tensor, Tensor]:
        """The newest column's index in a layer of `room` columns, (1,), and each row's mask, (B,
        1, 1, room), 0 or -inf."""
        index = (self.at - first) % room
        if room == self.seen.shape[1]:
            seen = self.seen
        else:
            column = self.at - (index - torch.arange(room, device=self.at.device)) % room
            seen = self.seen.index_select(1, column.clamp(min=0)) & (column >= 0)
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=seen.device)
        return index, mask.masked_fill_(~seen, -torch.inf)[:, None, None]


class Graph:
    """Runs a step the first time, which makes libraries ready; records it the second time, if on a
    GPU, and launches the record from then on: the tensors that it reads and writes must not change.
    notes: gains a line where a recording fails; steps run unrecorded then.
    """

    def __init__(self, device: torch.device, notes: list[str]):
        # Autocast keeps casts that it made: a record would read what is gone when it is launched.
        self.records = device.type == "cuda" and not torch.is_autocast_enabled("cuda")
        self.device, self.notes, self.warm = device, notes, False
        self.graph: Any = None

    def __call__(self, step: Step) -> None:
        if self.records and self.warm and self.graph is None:
            self._record(step)
        self.warm = True
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
            cause: BaseException | None = error
            while cause is not None and not out_of_memory(cause):
                cause = cause.__context__  # the capture's end raises over what was raised within
            if cause is not None:
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
