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

from rlzoo.accel.hf_internals import attention_kind, skip_packed_sequences
from rlzoo.accel.layout import Aligned
from rlzoo.errors import ModelError

NAME = "rlzoo_rows"  # among transformers' kinds of attention


class _Here(threading.local):
    """State of a thread: two runs may train in one process."""

    current: tuple[Any, Aligned] | None = None  # the pass that is being made: (model, rows)


_here = _Here()


@cache
def _set_up() -> None:
    """Change transformers in this process, once. It need not look at a pass's positions, and wait
    for the device, to find out whether several sequences stand in a row: none do."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, torch.compiler.disable(attend))
    skip_packed_sequences(lambda: _here.current is not None)


def same() -> Callable[[], AbstractContextManager]:
    """The context of the current pass, which a layer that is recomputed later must enter."""
    return partial(over, *_here.current) if _here.current else nullcontext


@contextmanager
def over(model: Any, rows: Aligned) -> Iterator[None]:
    """In this context, `model` reads these rows."""
    _set_up()
    before, _here.current = _here.current, (model, rows)
    try:  # transformers makes no mask for our kind of attention
        with nullcontext() if rows.line is None else attention_kind(model.config, NAME):
            yield
    finally:
        _here.current = before


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
) -> tuple[Tensor, None]:
    """Like transformers' `sdpa_attention_forward`: query, key and value are (1, heads, L, d), and
    the output (1, L, heads, d)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is not None or more.get("position_bias") is not None:
        raise ModelError("its attention has its own mask or bias")
    assert _here.current is not None
    line = _here.current[1].line
    assert line is not None
    index = line.rows.flatten()
    taken = (x[0].transpose(0, 1).index_select(0, index) for x in (query, key, value))
    query, key, value = (x.unflatten(0, line.rows.shape).transpose(1, 2) for x in taken)
    out, _ = sdpa_attention_forward(module, query, key, value, None, **more)
    return out.flatten(0, 1).index_select(0, line.back)[None], None
