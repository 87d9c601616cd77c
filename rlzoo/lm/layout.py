"""How rows lie in a forward pass: side by side, or a group as a tree that holds its prompt once.

All of it is worked out by the host, which knows the tokens and where they are: a device gets what
comes of it, and nobody waits.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlzoo.ops import on_host, put


@dataclass(frozen=True)
class Aligned:
    """Tokens as a model reads them, padding at the end only.

    Either each row by itself, prompt and response side by side: causal attention needs no mask
    then, and positions count from 0. Or a tree for each group, its prompt once and then all of its
    responses, each of which sees the prompt and itself.

    ids: (N, L). at: (R, T + 1) where response token t is chosen, and after the last, in the last
    `keep` positions of ids laid flat; T: the longest response. seen: (N, 1, L, L) and
    place: (N, L), attention mask and positions, of trees only.
    """

    ids: Tensor
    at: Tensor
    keep: int
    seen: Tensor | None = None
    place: Tensor | None = None
    longest: int = 0  # tokens of the longest row, prompt and response

    @property
    def width(self) -> int:
        return self.at.shape[1] - 1


def align(columns: Mapping[str, Any], *, trees: bool = False) -> Aligned:
    """Lay out rows; `trees`: rows with one `group_ids` share their prompt."""
    device = columns["response_ids"].device
    columns = {n: on_host(columns[n]) for n in _READ if n in columns}
    rows = _trees(columns) if trees else _side_by_side(columns)
    seen = None
    if rows.seen is not None:
        segment = put(rows.seen, device)
        length = segment.shape[1]
        below = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        same = segment[:, None] == segment[:, :, None]
        seen = (below & ((segment[:, None] == 0) | same))[:, None]
    place = None if rows.place is None else put(rows.place, device)
    return replace(rows, ids=put(rows.ids, device), at=put(rows.at, device), seen=seen, place=place)


_READ = ("prompt_ids", "prompt_mask", "response_ids", "response_attention", "group_ids")


def _side_by_side(columns: Mapping[str, Any]) -> Aligned:
    p, n = lengths(columns)
    width, length = int(n.max()), int((p + n).max())
    ids = torch.cat([columns["prompt_ids"], columns["response_ids"]], 1)
    start = (columns["prompt_mask"].shape[1] - p)[:, None]  # prompts are padded on the left
    ids = ids.gather(1, (start + torch.arange(length)).clamp(max=ids.shape[1] - 1))
    keep = length - int(p.min()) + 1
    at = (p[:, None] - 1 + torch.arange(width + 1)).clamp(max=length - 1) - (length - keep)
    row = torch.arange(len(p))[:, None]
    return Aligned(ids, row * keep + at, keep, longest=length)


def _trees(columns: Mapping[str, Any]) -> Aligned:
    """With `seen` (N, L): 0 of a prompt, k of its tree's k-th response, -1 of padding."""
    p, n = lengths(columns)
    width = int(n.max())
    _, tree, order, start, trunk = _forest(columns)
    total = torch.zeros_like(trunk).index_add_(0, tree, n) + trunk  # (N,)
    length = int(total.max())
    ids = columns["prompt_ids"].new_zeros(len(trunk), length)
    segment = torch.full_like(ids, -1)  # 0: of the prompt; k: of the k-th response; -1: padding
    place = torch.zeros_like(ids)
    # Prompts, from the first row of each tree.
    first = torch.zeros_like(trunk).index_copy_(0, tree.flip(0), torch.arange(len(p)).flip(0))
    inside = torch.arange(length) < trunk[:, None]  # (N, L)
    from_left = columns["prompt_mask"].shape[1] - trunk[:, None] + torch.arange(length)
    prompt = columns["prompt_ids"][first]
    at = from_left.clamp(max=prompt.shape[1] - 1)
    ids = torch.where(inside, prompt.gather(1, at), ids)
    segment = torch.where(inside, 0, segment)
    place = torch.where(inside, torch.arange(length), place)
    # Responses, one after the other.
    row, t = (torch.arange(width) < n[:, None]).nonzero().T
    to = tree[row], start[row] + t
    ids[to] = columns["response_ids"][row, t]
    segment[to] = order[row] + 1
    place[to] = trunk[tree[row]] + t
    keep = length - int(trunk.min()) + 1
    state = start[:, None] - 1 + torch.arange(width + 1)
    state[:, 0] = trunk[tree] - 1  # the first token is chosen at the prompt's end
    at = state.clamp(max=length - 1) - (length - keep)
    return Aligned(ids, tree[:, None] * keep + at, keep, segment, place, int((p + n).max()))


def _forest(columns: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """How rows (R,) lie in trees (N,): each tree's group; a row's tree, its place among the tree's
    rows, and where its response starts; each tree's prompt length."""
    p, n = lengths(columns)
    groups, tree = torch.unique(on_host(columns["group_ids"]), return_inverse=True)
    trunk = torch.zeros_like(groups).index_copy_(0, tree, p)
    by_tree = tree.argsort(stable=True)
    done = n[by_tree].cumsum(0) - n[by_tree]  # tokens of the rows before, trees one after another
    number = torch.arange(len(p))
    count = torch.bincount(tree, minlength=len(groups))
    begin = count.cumsum(0) - count  # (N,)
    start, order = torch.empty_like(n), torch.empty_like(n)
    start[by_tree] = done - done[begin][tree[by_tree]] + trunk[tree[by_tree]]
    order[by_tree] = number - begin[tree[by_tree]]
    return groups, tree, order, start, trunk


@contextmanager
def one_sequence_a_row() -> Iterator[None]:
    """Within, transformers does not look at positions, and wait for the device, to find out whether
    several sequences stand in a row."""
    from transformers import masking_utils

    look = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = look


def lengths(columns: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Tokens of prompts and of responses, (R,) int64, in the host's memory."""
    masks = (on_host(columns[n]) for n in ("prompt_mask", "response_attention"))
    prompt, response = (mask.long().sum(1) for mask in masks)
    return prompt, response


def trees_pay(columns: Mapping[str, Any], keys: float) -> bool:
    """Whether reading each group's prompt once saves a tenth of the work.

    keys: how many keys of attention cost as much as one position's matrix products.
    """
    if "group_ids" not in columns or not len(columns["group_ids"]):
        return False
    p, n = lengths(columns)
    _, tree, _, _, trunk = _forest(columns)
    together = torch.zeros_like(trunk).index_add_(0, tree, n) + trunk
    rows, trees = ((x * (keys + x)).sum() for x in (p + n, together))
    return bool(trees < 0.9 * rows)


def pack(columns: Mapping[str, Any], budget: int, *, trees: bool = False) -> list[Tensor]:
    """Rows (R,) of each pass: of like length, so that little is padding, and no more than `budget`
    positions, padding included. A row (or tree) that is longer goes alone. A pass that holds a
    quarter of the budget ends before more than a twentieth of it is padding."""
    p, n = lengths(columns)
    if trees:
        _, tree, _, _, trunk = _forest(columns)
        size = torch.zeros_like(trunk).index_add_(0, tree, n) + trunk
    else:
        tree, size = torch.arange(len(p)), p + n
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
        parts.append(torch.isin(tree, some).nonzero()[:, 0] if trees else some)
        start += count
    return parts
