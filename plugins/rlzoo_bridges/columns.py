"""A trainer's tensors by rlzoo's names, each made on first use.

A bridge defines how a column is made of the trainer's own data; those that follow from others are
made here, the same for every trainer (`hosts.DERIVED` has what they are made of).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import ComponentError
from rlzoo.ops import masked_sum
from rlzoo_bridges.hosts import DERIVED, Host


def bootstrap_values(values: Tensor, response_mask: Tensor) -> Tensor:
    """0, as if every response had ended: no trainer keeps V after the last token."""
    return values.new_zeros(len(response_mask))


def turn_ids(response_mask: Tensor) -> Tensor:
    """Runs of actions between observations, (B, T) from 1; 0 off the mask."""
    mask = response_mask.bool()
    before = torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return (mask & ~before).long().cumsum(1) * mask


MAKERS: dict[str, Callable[..., Tensor]] = {
    "sequence_rewards": masked_sum,
    "sequence_scores": masked_sum,
    "bootstrap_values": bootstrap_values,
    "turn_ids": turn_ids,
}


class Columns(Mapping[str, Any]):
    """A batch of a trainer as an estimator reads it.

    own: column -> a tensor, or what makes it of the trainer's data; that raises KeyError where they
    lack it.
    plugins: column -> the plugin that makes it of others, by its default options.
    """

    def __init__(self, host: Host, own: Mapping[str, Any]):
        self.host, self.own = host, own
        self.plugins: Mapping[str, Any] = {}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        if name not in self.host.columns:
            return self.plugins[name](self)
        if name not in self.own:
            return MAKERS[name](*(self[n] for n in DERIVED[name]))
        try:
            own = self.own[name]
            return own() if callable(own) else own
        except KeyError as missing:
            ask = self.host.asks.get(name)
            how = f"; it requires {ask}" if ask else ""
            raise ComponentError(
                f"rlzoo in {self.host.title}: {name!r} needs {missing.args[0]!r}, which the "
                f"batch does not contain{how}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.host.gives(name, self.plugins)

    def __iter__(self) -> Iterator[str]:
        return iter(self.host.columns)

    def __len__(self) -> int:
        return len(self.host.columns)


def last_outputs(keys: Sequence[str]) -> tuple[list[int], list[int]]:
    """The row of each session's last output, and the session of each row: its place among those.

    keys: `{prompt}_{session}_{output}`, as verl's V1 trainer names rows, outputs counted from 0.
    """
    last: dict[str, tuple[int, int]] = {}
    parts = [key.rpartition("_") for key in keys]
    for row, (session, _, output) in enumerate(parts):
        last[session] = max(last.get(session, (-1, -1)), (int(output), row))
    place = {session: i for i, session in enumerate(last)}
    return [row for _, row in last.values()], [place[session] for session, _, _ in parts]


def numbered(ids: Sequence[Any], device: Any = None) -> Tensor:
    """Group ids (B,) int64 of any names, numbered as they come."""
    order: dict[Any, int] = {}
    return torch.tensor([order.setdefault(name, len(order)) for name in ids], device=device)
