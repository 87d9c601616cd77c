"""An estimator and a recipe's loss on the episodes of a world."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlzoo.ops import masked_sum, whiten
from rlzoo.plugin.component import Component
from rlzoo_lab.kit.oracle.episodes import EpisodeTable
from rlzoo_lab.kit.oracle.oracle import Oracle

Columns = dict[str, Any]


@dataclass(frozen=True)
class Loss:
    """The weights that a recipe's loss gives the advantages in the policy's gradient.

    weight: (B, T) the aggregation's, of each token of each episode, in the limit of large batches;
        1 on average over tokens as visited, 0 in rows that leave the loss.
    whiten: "batch" (in that limit too), "group" or "none".
    """

    weight: Tensor
    whiten: str = "none"
    ddof: int = 0


LARGE = 100_000  # rows of a batch that has every length, or episode, as often as the world


def make_loss(
    aggregation: Callable[[Columns], Tensor],
    episodes: EpisodeTable,
    *,
    whiten: str = "none",
    ddof: int = 0,
    kept: Tensor | None = None,
) -> Loss:
    """The loss of a recipe on all episodes of a world. kept: rows (B,) bool that enter it.

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
    return Loss(weight / mean.clamp(min=1e-300), whiten, ddof)


@dataclass
class EstimatorInWorld:
    """An estimator with its options, evaluated on the episodes of an oracle."""

    component: Component
    options: Mapping[str, Any]
    oracle: Oracle
    episodes: EpisodeTable
    columns: Columns
    samples: int = 4
    loss: Loss | None = None  # None: all tokens count the same
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
        taken: Columns = {"response_mask": columns["response_mask"][rows]}
        for name in self.reads:
            x = columns[name]
            if isinstance(x, list):
                taken[name] = [x[i] for i in rows.tolist()]
            else:
                taken[name] = x[rows] if len(x) == len(self.episodes.probability) else x
        return taken | {"group_ids": group_ids}

    def among(self, columns: Columns, rows: Tensor, group_ids: Tensor) -> Tensor:
        """A^ of rows in groups."""
        return self(self.take(columns, rows, group_ids))

    @property
    def couples(self) -> str:
        """The other rows on which the loss of a row depends, in the limit of large batches."""
        by_group = self.loss is not None and self.loss.whiten == "group"
        kinds = [self.component.couples, "group" if by_group else "row"]
        return max(kinds, key=("row", "group", "batch").index)

    def whitened(self, a: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """A^ of rows, standardised among those of the same id."""
        mask = self.episodes.mask[rows].to(a.dtype)
        return whiten(a, mask, ids, ddof=self.loss.ddof if self.loss else 0)

    def in_groups(self, a: Tensor, rows: Tensor, group_ids: Tensor) -> Tensor:
        """A^ of rows in groups, whitened where the recipe does so within groups."""
        by_group = self.loss is not None and self.loss.whiten == "group"
        return self.whitened(a, rows, group_ids) if by_group else a

    @property
    def weight(self) -> Tensor:
        """(B, T) of each token in the loss."""
        return self.episodes.mask.double() if self.loss is None else self.loss.weight
