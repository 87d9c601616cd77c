"""Attention of rows that lie in one line and share prompts: each row sees what it would by itself.

All else in a layer looks at one position at a time, so that a group's prompt is worked on once.
Attention takes the rows' queries, keys and values out of the line, runs torch's causal kernel on
them, without a mask, and puts what comes out back.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import ModelError
from rlzoo.lm.layout import Aligned

NAME = "rlzoo_rows"  # among transformers' kinds of attention

_now: list[tuple[Any, Aligned]] = []  # (config, rows) of passes that are being made


def over(model: Any, rows: Aligned) -> AbstractContextManager:
    """Within, `model` reads these rows."""
    return _one_sequence_a_row() if rows.rows is None else within((model.config, rows))


@contextmanager
def _one_sequence_a_row() -> Iterator[None]:
    """Within, transformers does not look at positions, and wait for the device, to find out whether
    several sequences stand in a row."""
    from transformers import masking_utils

    look = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = look


def same() -> Callable[[], AbstractContextManager]:
    """Of the pass that is being made, what a layer that is computed again later must be within."""
    return partial(within, _now[-1]) if _now else nullcontext


@contextmanager
def within(line: tuple[Any, Aligned]) -> Iterator[None]:
    from transformers import AttentionInterface

    config, _ = line
    AttentionInterface.register(NAME, attend)
    before = config._attn_implementation
    config._attn_implementation = NAME  # for which transformers makes no mask
    _now.append(line)
    try:
        yield
    finally:
        _now.pop()
        config._attn_implementation = before


@torch.compiler.disable
def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
) -> tuple[Tensor, None]:
    """As transformers' `sdpa_attention_forward`: query, key and value (1, heads, L, d) of the line,
    the output (1, L, heads, d)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is not None or more.get("position_bias") is not None:
        raise ModelError("its attention has a mask or a bias of its own")
    rows, back = _now[-1][1].rows, _now[-1][1].back
    assert rows is not None
    assert back is not None
    index = rows.flatten()

    def taken(x: Tensor) -> Tensor:
        return x[0].transpose(0, 1).index_select(0, index).unflatten(0, rows.shape).transpose(1, 2)

    out, _ = sdpa_attention_forward(module, taken(query), taken(key), taken(value), None, **more)
    return out.flatten(0, 1).index_select(0, back)[None], None
