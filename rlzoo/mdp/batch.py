"""The batch: a mapping from column names to tensors that only gains columns."""

from collections import UserDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo.plugin.call import has_shape, zero_off_mask
from rlzoo.plugin.columns import COLUMNS, KEPT_OFF_MASK, Columns


class Batch(UserDict[str, Any]):
    """Columns by name. Adding a column checks its shape and zeroes it off the mask (B, T).

    `response_mask` comes first; nothing is ever overwritten or removed. Plugins' columns declare
    their shape.
    """

    def __init__(self, response_mask: Tensor):
        self.data = {"response_mask": response_mask}
        self.rows, self.steps = response_mask.shape

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"column {name!r} cannot be removed; a batch only gains columns")

    def add(self, name: str, value: Any, shape: str | None = None) -> None:
        """Add a column; raises ValueError if it already exists or has the wrong shape."""
        if name in self:
            raise ValueError(f"column {name!r} already exists; a batch only gains columns")
        shape = shape or COLUMNS[name].shape
        if shape == "list":
            if len(value) != self.rows:
                raise ValueError(f"column {name!r} has {len(value)} entries, not {self.rows}")
        elif not has_shape(value, shape, self.rows, self.steps):
            raise ValueError(f"column {name!r} has shape {tuple(value.shape)}, not {shape}")
        elif shape in ("BT", "BTK") and name not in KEPT_OFF_MASK:
            value = zero_off_mask(value, self["response_mask"])
        self.data[name] = value

    __setitem__ = add

    def cpu(self) -> "Batch":
        """The columns with at most two dimensions in the host's memory; itself if it is there."""
        if self["response_mask"].device.type == "cpu":
            return self
        batch = Batch(self["response_mask"].cpu())
        flat = {n: x for n, x in self.items() if isinstance(x, Tensor) and x.ndim <= 2}
        batch.data = {**self.data, **{n: x.detach().cpu() for n, x in flat.items()}}
        return batch


def take(columns: Columns, rows: Tensor) -> dict[str, Any]:
    """`columns` of some rows (R,) int64; a column of shape K has no rows and stays whole."""
    index = rows.tolist()
    picked: dict[str, Any] = {}
    for name, value in columns.items():
        if isinstance(value, list):
            picked[name] = [value[i] for i in index]
        elif name in COLUMNS and COLUMNS[name].shape == "K":
            picked[name] = value
        else:
            picked[name] = value[rows]
    return picked


def widen(x: Tensor, width: int, *, fill: float = 0, left: bool = False) -> Tensor:
    """x (B, W, ...) with dimension 1 padded to `width`, on the right or on the left."""
    missing = width - x.shape[1]
    if missing == 0:
        return x
    more = x.new_full((x.shape[0], missing, *x.shape[2:]), fill)
    return torch.cat([more, x] if left else [x, more], 1)


def right_pad(rows: Sequence[list[int]], fill: int) -> tuple[Any, Any]:
    """(ids, attention mask), both (B, L) int64."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(width) < lengths[:, None]).long()


def left_pad(rows: list[list[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(ids, mask), both (B, P)."""
    ids, mask = (x.flip(1) for x in right_pad([row[::-1] for row in rows], pad_id))
    return ids.to(device), mask.float().to(device)


def joined(parts: Sequence[Columns], pad_id: int) -> dict[str, Any]:
    """The rows of several batches, one after the other. Prompts are widened on the left and
    responses on the right, with `pad_id` where they hold ids."""
    whole: dict[str, Any] = {}
    for name, first in parts[0].items():
        pieces = [part[name] for part in parts]
        shape = COLUMNS[name].shape if name in COLUMNS else ""
        if isinstance(first, list):
            whole[name] = [x for piece in pieces for x in piece]
        elif shape == "K":
            whole[name] = first
        else:
            if first.ndim > 1 and shape != "BK":
                width = max(piece.shape[1] for piece in pieces)
                fill = pad_id if name in ("prompt_ids", "response_ids") else 0
                pieces = [widen(x, width, fill=fill, left=shape == "BP") for x in pieces]
            whole[name] = torch.cat(pieces)
    return whole


def concatenate(parts: Sequence[Columns], pad_id: int, device: torch.device) -> Batch:
    """`joined` batches, whose columns are on the host, as one on `device`."""
    whole = joined(parts, pad_id)
    whole = {n: x.to(device) if isinstance(x, Tensor) else x for n, x in whole.items()}
    batch = Batch(whole.pop("response_mask"))
    batch.update(whole)
    return batch
