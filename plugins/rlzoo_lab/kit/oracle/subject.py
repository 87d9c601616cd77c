"""An estimator and a recipe's loss on the episodes of a world."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlzoo.mdp.batch import take
from rlzoo.ops import masked_sum, whiten
from rlzoo.plugin.component import Component
from rlzoo_lab.kit.oracle.episodes import EpisodeTable
from rlzoo_lab.kit.oracle.oracle import Oracle

Columns = dict[str, Any]


LARGE = 100_000  # rows of a batch that has every length, or episode, as often as the world


def loss_weight(
    aggregation: Callable[[Columns], Tensor], episodes: EpisodeTable, kept: Tensor | None = None
) -> Tensor:
    """(B, T) the weight that a recipe's loss gives each token of each episode in the policy's
    gradient, in the limit of large batches: 1 on average over tokens as visited, 0 in rows that
    leave the loss. kept: rows (B,) bool that enter it.

    The aggregation runs on a batch that holds each length as often as the world does, by
    rounding; a row's weight may depend on itself and on the batch's totals.
    """
    mask, p = episodes.mask, episodes.probability
    live = mask if kept is None else mask & kept[:, None]
    length = live.sum(1)
    share = torch.zeros(mask.shape[1] + 1, dtype=p.dtype).index_add_(0, length, p)
    count = torch.where(share > 0, (LARGE * share).round().clamp(min=1), 0).long()
    lengths = torch.arange(len(count)).repeat_interleave(count)
    step = torch.arange(mask.shape[1])
    batch = (step < lengths[:, None]).to(p.dtype)
    first = (count.cumsum(0) - count).clamp(max=len(batch) - 1)  # a row of each length
    of_length = aggregation({"response_mask": batch})[first]
    weight = torch.where(live, of_length[length], 0).to(p.dtype)
    mean = masked_sum(weight, mask) @ p / (mask.sum(1).to(p.dtype) @ p)
    return weight / mean.clamp(min=1e-300)


@dataclass
class EstimatorInWorld:
    """An estimator with its options, evaluated on the episodes of an oracle.

    given_weight: (B, T) of each token in the loss; None: all count the same. whiten: "batch" (in
    the limit of large batches), "group" or "none".
    """

    component: Component
    options: Mapping[str, Any]
    oracle: Oracle
    episodes: EpisodeTable
    columns: Columns
    samples: int = 4
    given_weight: Tensor | None = None
    whiten: str = "none"
    ddof: int = 0
    seed: int = 0

    def __call__(self, columns: Mapping[str, Any]) -> Tensor:
        """A^ (B, T)."""
        return self.component(columns, **self.options)["advantages"]

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the estimator needs, with these options."""
        return self.component.needs_with(self.component.check_options(self.options))

    def take(self, columns: Columns, rows: Tensor, group_ids: Tensor) -> Columns:
        """The columns that the estimator sees, of some rows, in new groups."""
        seen = {name: columns[name] for name in ("response_mask", *self.reads)}
        return take(seen, rows) | {"group_ids": group_ids}

    def among(self, columns: Columns, rows: Tensor, group_ids: Tensor) -> Tensor:
        """A^ of rows in groups."""
        return self(self.take(columns, rows, group_ids))

    @property
    def couples(self) -> str:
        """The other rows on which the loss of a row depends, in the limit of large batches."""
        kinds = [self.component.couples, "group" if self.whiten == "group" else "row"]
        return max(kinds, key=("row", "group", "batch").index)

    def whitened(self, a: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """A^ of rows, standardised among those of the same id."""
        mask = self.episodes.mask[rows].to(a.dtype)
        return whiten(a, mask, ids, ddof=self.ddof)

    def in_groups(self, a: Tensor, rows: Tensor, group_ids: Tensor) -> Tensor:
        """A^ of rows in groups, whitened where the recipe does so within groups."""
        return self.whitened(a, rows, group_ids) if self.whiten == "group" else a

    @property
    def weight(self) -> Tensor:
        """(B, T) of each token in the loss."""
        return self.episodes.mask.double() if self.given_weight is None else self.given_weight
