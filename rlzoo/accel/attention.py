"""Attention for rows packed in one line with shared prompts: each row sees only its own tokens.

Everything else in a layer works on single positions, so a group's prompt is computed once.
Attention takes the rows' queries, keys and values out of the line, runs torch's causal kernel on
them, without a mask, and puts the outputs back.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from rlzoo.accel import hf_internals
from rlzoo.accel.layout import Aligned
from rlzoo.errors import ModelError

NAME = "rlzoo_rows"  # among transformers' kinds of attention


class _Here(threading.local):
    """State of a thread: two runs may train in one process."""

    def __init__(self) -> None:
        self.passes: list[tuple[Any, Aligned]] = []  # (config, rows) of those that are being made
        self.one_sequence_a_row = 0  # how many passes need it


_here = _Here()


def over(model: Any, rows: Aligned) -> AbstractContextManager:
    """In this context, `model` reads these rows."""
    return _one_sequence_a_row() if rows.rows is None else within((model.config, rows))


@contextmanager
def _one_sequence_a_row() -> Iterator[None]:
    """In this context, transformers does not search the positions for several sequences in a row,
    which would wait for the device."""
    _set_up()
    _here.one_sequence_a_row += 1
    try:
        yield
    finally:
        _here.one_sequence_a_row -= 1


@cache
def _set_up() -> None:
    """Change transformers in this process, once."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, torch.compiler.disable(attend))
    hf_internals.skip_packed_sequences(lambda: bool(_here.one_sequence_a_row))


def same() -> Callable[[], AbstractContextManager]:
    """The context of the current pass, which a layer that is recomputed later must enter."""
    return partial(within, _here.passes[-1]) if _here.passes else nullcontext


@contextmanager
def within(line: tuple[Any, Aligned]) -> Iterator[None]:
    _set_up()
    config, _ = line
    with hf_internals.attention_kind(config, NAME):  # transformers makes no mask for it
        _here.passes.append(line)
        try:
            yield
        finally:
            _here.passes.pop()


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
) -> tuple[Tensor, None]:
    """Like transformers' `sdpa_attention_forward`: query, key and value are (1, heads, L, d), and
    the output (1, L, heads, d)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is not None or more.get("position_bias") is not None:
        raise ModelError("its attention has its own mask or bias")
    _, line = _here.passes[-1]
    rows, back = line.rows, line.back
    assert rows is not None
    assert back is not None
    index = rows.flatten()

    def taken(x: Tensor) -> Tensor:
        return x[0].transpose(0, 1).index_select(0, index).unflatten(0, rows.shape).transpose(1, 2)

    out, _ = sdpa_attention_forward(module, taken(query), taken(key), taken(value), None, **more)
    return out.flatten(0, 1).index_select(0, back)[None], None
