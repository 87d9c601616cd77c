"""The batch: a mapping from column names to tensors that only gains columns."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from rlzoo.columns import COLUMNS, KEPT_OFF_MASK
from rlzoo.contracts import zero_off_mask


class Batch(Mapping[str, Any]):
    """Columns by name. Adding one checks its shape and puts exact zeros off the mask (B, T).

    `response_mask` comes first; nothing is ever overwritten. Columns of plugins say their shape.
    """

    def __init__(self, response_mask: Tensor):
        self._columns: dict[str, Any] = {"response_mask": response_mask}
        self.rows, self.steps = response_mask.shape

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def add(self, name: str, value: Any, shape: str | None = None) -> None:
        """Add a column; raises ValueError if it is there already or of the wrong shape."""
        if name in self._columns:
            raise ValueError(f"column {name!r} is there already; a batch only gains columns")
        shape = shape or COLUMNS[name].shape
        if shape == "list":
            if len(value) != self.rows:
                raise ValueError(f"column {name!r} has {len(value)} entries, not {self.rows}")
        else:
            lead = {"B": (self.rows,), "BT": (self.rows, self.steps)}.get(shape[:2], ())
            lead = (self.rows,) if shape in ("BP", "BK") else lead
            if tuple(value.shape[: len(lead)]) != lead or value.ndim != len(shape):
                raise ValueError(f"column {name!r} has shape {tuple(value.shape)}, not {shape}")
            if shape in ("BT", "BTK") and name not in KEPT_OFF_MASK:
                value = zero_off_mask(value, self["response_mask"])
        self._columns[name] = value

    def update(self, columns: Mapping[str, Any]) -> None:
        for name, value in columns.items():
            self.add(name, value)

    def select(self, rows: Tensor) -> dict[str, Any]:
        """The columns of some rows (R,) int64, as a plain mapping."""
        return take(self, rows)


def take(columns: Mapping[str, Any], rows: Tensor) -> dict[str, Any]:
    """`columns` of some rows (R,) int64; a column of shape K has none and stays whole."""
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


def trim(columns: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """`columns` without the padding that none of their rows need, and the width T that remains."""
    mask = columns["response_attention"].bool()
    prompt = columns["prompt_mask"].bool()
    width = int(mask.any(0).nonzero().max()) + 1 if bool(mask.any()) else 1
    start = int(prompt.any(0).nonzero().min()) if bool(prompt.any()) else 0
    cut = dict(columns)
    for name in ("response_ids", "response_mask", "response_attention"):
        cut[name] = columns[name][:, :width]
    for name in ("prompt_ids", "prompt_mask"):
        cut[name] = columns[name][:, start:]
    return cut, width
