"""The layout of rows in a forward pass: padded, or packed in one line with shared prompts; and the
attention that reads such a line.

The host computes the layout, since it has the tokens and their positions. Everything else in a
layer works on single positions, so a group's prompt is computed once. Attention takes the rows'
queries, keys and values out of the line, runs torch's causal kernel on them, without a mask, and
puts the outputs back: each row sees only its own tokens.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlzoo.accel.hf_internals import attention_kind, skip_packed_sequences
from rlzoo.errors import ModelError

CUT = 4  # responses of a unit are at least this many times as long as its prompt: see `_units`


@dataclass(frozen=True)
class Aligned:
    """Tokens as the model reads them.

    Either each row is separate, prompt followed by response and padding: causal attention then
    needs no mask, and positions count from 0. Or all in one line, N = 1: each group's prompt once,
    then all responses, nothing padded. Attention then takes the rows out of the line
    (`attend`), so that it sees and costs the same.

    ids: (N, L). at: (R, T + 1) where response token t is chosen, and after the last, in the last
    `keep` positions of ids laid flat; T: the longest response. place: (1, L), the positions in a
    line. line: where a line's rows are; None for rows by themselves.
    """

    ids: Tensor
    at: Tensor
    keep: int
    place: Tensor | None = None
    line: "Line | None" = None
    longest: int = 0  # tokens of the longest row, prompt and response


class Line(NamedTuple):
    """rows: (R, longest), where a row's tokens are in the line. back: (L,), where in these rows
    laid flat each token of the line is."""

    rows: Tensor
    back: Tensor


def align(columns: Mapping[str, Tensor], *, trees: bool = False) -> Aligned:
    """Lay out rows; `trees`: rows with one `group_ids` share their prompt if that saves a tenth of
    the positions."""
    device = columns["response_ids"].device
    columns = {n: columns[n].cpu() for n in _READ if n in columns}
    p, n = lengths(columns)
    width, length = int(n.max()), int((p + n).max())
    ids = torch.cat([columns["prompt_ids"], columns["response_ids"]], 1)
    start = (columns["prompt_mask"].shape[1] - p)[:, None]  # prompts are padded on the left
    ids = ids.gather(1, (start + torch.arange(length)).clamp(max=ids.shape[1] - 1))
    keep = length - int(p.min()) + 1
    at = (p[:, None] - 1 + torch.arange(width + 1)).clamp(max=length - 1) - (length - keep)
    rows = Aligned(ids, torch.arange(len(p))[:, None] * keep + at, keep, longest=length)
    if trees and (forest := _forest(columns)):
        rows = _in_line(columns, rows, *forest)
    return Aligned(
        rows.ids.to(device),
        rows.at.to(device),
        rows.keep,
        None if rows.place is None else rows.place.to(device),
        None if rows.line is None else Line(*(x.to(device) for x in rows.line)),
        rows.longest,
    )


_READ = ("prompt_ids", "prompt_mask", "response_ids", "response_attention", "group_ids")


def _in_line(columns: Mapping[str, Tensor], rows: Aligned, tree: Tensor, trunk: Tensor) -> Aligned:
    """Padded rows, packed into one line with each group's prompt once; see `_forest`."""
    p, n = lengths(columns)
    begin = trunk.cumsum(0) - trunk  # of each group's prompt
    start = trunk.sum() + n.cumsum(0) - n  # of each row's response
    step = torch.arange(rows.longest)
    to = torch.where(step < p[:, None], begin[tree][:, None], (start - p)[:, None]) + step
    inside = step < (p + n)[:, None]
    to = to.where(inside, 0)  # padding is never read
    back = to.new_zeros(int(trunk.sum() + n.sum()))
    back[to[inside]] = inside.flatten().nonzero()[:, 0]
    last = (p[:, None] - 1 + torch.arange(rows.at.shape[1])).clamp(max=rows.longest - 1)
    return Aligned(
        rows.ids.flatten()[back][None],
        to.gather(1, last),
        len(back),
        place=(back % rows.longest)[None],
        line=Line(to, back),
        longest=rows.longest,
    )


def _forest(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """The group of each row, (R,), counted from 0, and the length of each group's prompt; None
    unless reading each group's prompt once saves a tenth of the positions, or where agents gave a
    group several prompts."""
    if "group_ids" not in columns or not len(columns["group_ids"]):
        return None
    p, n = lengths(columns)
    groups, tree = torch.unique(columns["group_ids"].cpu(), return_inverse=True)
    first = torch.full_like(groups, len(p)).scatter_reduce_(0, tree, torch.arange(len(p)), "amin")
    prompts = columns["prompt_ids"].cpu()
    if not (torch.equal(prompts, prompts[first[tree]]) and torch.equal(p, p[first[tree]])):
        return None
    trunk = torch.zeros_like(groups).index_copy_(0, tree, p)
    return (tree, trunk) if trunk.sum() + n.sum() < 0.9 * (p + n).sum() else None


def lengths(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens of prompts and of responses, (R,) int64, in the host's memory."""
    masks = (columns[n].cpu() for n in ("prompt_mask", "response_attention"))
    prompt, response = (mask.long().sum(1) for mask in masks)
    return prompt, response


def pack(columns: Mapping[str, Tensor], budget: int, *, trees: bool = False) -> list[Tensor]:
    """Rows (R,) of each pass: rows of similar length, to limit padding, and at most `budget`
    positions including padding, unless a single row or unit (see `_units`) has more. A pass that
    holds a quarter of the budget ends before more than a twentieth of it is padding. trees: as for
    `align`."""
    forest = _forest(columns) if trees else None
    unit, size = _units(columns, budget, forest)
    order = size.argsort(descending=True, stable=True)
    longest = size[order].tolist()
    parts, start = [], 0
    while start < len(longest):
        width = max(1, longest[start])
        count, real = 0, 0
        for n_row in longest[start : start + max(1, budget // width)]:
            full = width * count
            if full >= budget / 4 and real + n_row < 0.95 * (full + width):
                break
            count, real = count + 1, real + n_row
        some = order[start : start + count]
        parts.append(torch.isin(unit, some).nonzero()[:, 0] if forest else some)
        start += count
    return parts


def _units(
    columns: Mapping[str, Tensor], budget: int, forest: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The number of the unit that each row (R,) belongs to, and how many positions each unit takes:
    one pass reads a whole unit. A unit is a row; with a `forest` it is a group, whose prompt counts
    once.

    A group of more than `budget` positions is cut into several units. Each of them reads the prompt
    again, so a unit may be larger until its responses are `CUT` times as long as the prompt.
    """
    p, n = lengths(columns)
    if forest is None:
        return torch.arange(len(p)), p + n
    tree, trunk = forest
    size = torch.zeros_like(trunk).index_add_(0, tree, n) + trunk
    if bool((size <= budget).all()):
        return tree, size
    groups, prompts, responses = tree.tolist(), trunk.tolist(), n.tolist()
    sizes: list[int] = []
    unit, last = torch.zeros_like(tree), None
    for row in tree.argsort(stable=True).tolist():  # the rows of a group follow each other
        prompt = prompts[groups[row]]
        full = sizes and sizes[-1] + responses[row] > max(budget, (1 + CUT) * prompt)
        if groups[row] != last or full:
            sizes.append(prompt)
        sizes[-1] += responses[row]
        unit[row], last = len(sizes) - 1, groups[row]
    return unit, torch.tensor(sizes, dtype=torch.long)


# ---------------------------------------------------------------- attention


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
