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
from rlzoo.accel.layout import Aligned, Line
from rlzoo.errors import ModelError

NAME = "rlzoo_rows"  # among transformers' kinds of attention


class _Here(threading.local):
    """State of a thread: two runs may train in one process."""

    def __init__(self) -> None:
        self.passes: list[tuple[Any, Line | None]] = []  # (config, line) of those being made


_here = _Here()


def over(model: Any, rows: Aligned) -> AbstractContextManager:
    """In this context, `model` reads these rows."""
    return _within(model.config, rows.line)


@cache
def _set_up() -> None:
    """Change transformers in this process, once. It need not look at a pass's positions, and wait
    for the device, to find out whether several sequences stand in a row: none do."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, torch.compiler.disable(attend))
    hf_internals.skip_packed_sequences(lambda: bool(_here.passes))


def same() -> Callable[[], AbstractContextManager]:
    """The context of the current pass, which a layer that is recomputed later must enter."""
    return partial(_within, *_here.passes[-1]) if _here.passes else nullcontext


@contextmanager
def _within(config: Any, line: Line | None) -> Iterator[None]:
    _set_up()
    _here.passes.append((config, line))
    try:  # transformers makes no mask for our kind of attention
        with nullcontext() if line is None else hf_internals.attention_kind(config, NAME):
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
    assert line is not None
    index = line.rows.flatten()

    def taken(x: Tensor) -> Tensor:
        return (
            x[0]
            .transpose(0, 1)
            .index_select(0, index)
            .unflatten(0, line.rows.shape)
            .transpose(1, 2)
        )

    out, _ = sdpa_attention_forward(module, taken(query), taken(key), taken(value), None, **more)
    return out.flatten(0, 1).index_select(0, line.back)[None], None
