"""E[A^ | s, a] of an estimator: by one call, by every group, or by draws of partners."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlzoo.mdp.noise import generator
from rlzoo.oracle.episodes import EpisodeTable
from rlzoo.oracle.oracle import Oracle
from rlzoo.plugin.component import Component

Columns = dict[str, Any]

# Columns of some episodes (rows (B,)), for the m-th draw of whatever is random in them.
Fresh = Callable[[int, Tensor], Columns]


@dataclass
class EstimatorInWorld:
    """An estimator with its options, asked about the episodes of an oracle."""

    component: Component
    options: Mapping[str, Any]
    oracle: Oracle
    episodes: EpisodeTable
    columns: Columns
    fresh: Fresh | None = None  # where the columns hold chance
    samples: int = 4
    prompts: int = 8  # per batch; matters to estimators that couple the batch
    kept: Tensor | None = None  # rows (B,) that enter the loss; None: all
    seed: int = 0

    def __call__(self, columns: Mapping[str, Any]) -> Tensor:
        """A^ (B, T)."""
        return self.component(columns, **self.options)["advantages"]

    def take(self, columns: Columns, rows: Tensor, group_ids: Tensor) -> Columns:
        """The columns that the estimator sees, of some rows, in new groups."""
        taken: Columns = {"response_mask": columns["response_mask"][rows]}
        for name in self.component.needs:
            x = columns[name]
            if isinstance(x, list):
                taken[name] = [x[i] for i in rows.tolist()]
            else:
                taken[name] = x[rows] if len(x) == len(self.episodes.probability) else x
        taken["group_ids"] = group_ids
        return taken

    def among(self, columns: Columns, rows: Tensor, group_ids: Tensor) -> Tensor:
        """A^ of rows in groups; those of rows that leave the loss are 0."""
        return self.in_loss(self(self.take(columns, rows, group_ids)), rows)

    def in_loss(self, a: Tensor, rows: Tensor) -> Tensor:
        """A^ of rows, 0 where they leave the loss."""
        return a if self.kept is None else a * self.kept[rows, None]

    def draws(self, m: int) -> Columns:
        everyone = torch.arange(len(self.episodes.probability))
        return self.fresh(m, everyone) if self.fresh else self.columns


@dataclass
class Means:
    """Of A^ at each choice: over R replicas (1 if exact). mean (R, S, V); square, sign (S, V)."""

    mean: Tensor
    square: Tensor
    sign: Tensor
    method: str


ROWS = 400_000  # that an estimator is called on, at most, for a mean


def means(subject: EstimatorInWorld) -> Means:
    """E[A^ | s, a], E[A^^2 | s, a] and E[sign A^ | s, a]."""
    if subject.component.couples == "row":
        return _row_by_row(subject)
    kinds, size = _kinds(subject), subject.samples
    if subject.component.couples == "group" and subject.fresh is None:
        groups = max(math.comb(len(kind.rows) + size - 1, size) for kind in kinds)
        if groups * size * len(kinds) <= ROWS:
            return _all_groups(subject, kinds)
    return _paired(subject, kinds)


def _row_by_row(subject: EstimatorInWorld) -> Means:
    rows = torch.arange(len(subject.episodes.probability))
    count = max(4, min(16, ROWS // (8 * len(rows)))) if subject.fresh else 1
    sums = _Sums(subject)
    for m in range(count):
        columns = subject.draws(m)
        a = subject.among(columns, rows, columns["group_ids"])
        sums.add(a, a.square(), a.sign())
    return sums.done(count if subject.fresh else 0)


@dataclass
class _Kind:
    """The rows of one prompt, told apart by what the estimator sees."""

    members: Tensor  # (b,) rows of the episodes
    which: Tensor  # (b,) the kind of each, 0 .. K - 1
    rows: Tensor  # (K,) a row of each kind
    share: Tensor  # (K,) probability given the prompt


def _kinds(subject: EstimatorInWorld) -> list[_Kind]:
    kinds, columns = [], subject.columns
    p = subject.episodes.probability
    size = len(p)
    for prompt in range(subject.oracle.tree.prompts):
        members = (subject.episodes.prompt == prompt).nonzero()[:, 0]
        seen = [subject.episodes.mask.double()]
        if subject.kept is not None:
            seen.append(subject.kept.double()[:, None])
        listed = subject.fresh is not None
        for name in subject.component.needs:
            x = columns[name]
            listed |= isinstance(x, list)
            if isinstance(x, Tensor) and name != "group_ids" and len(x) == size:
                seen.append(x.double().reshape(size, -1))
        if listed:  # texts, or fresh draws: no two rows are the same
            which = torch.arange(len(members))
        else:
            digits = (torch.cat(seen, 1)[members] * 1e9).round()
            which = torch.unique(digits, dim=0, return_inverse=True)[1]
        share = torch.zeros(int(which.max()) + 1, dtype=p.dtype).index_add_(0, which, p[members])
        first = torch.full((len(share),), size).scatter_reduce_(0, which, members, "amin")
        kinds.append(_Kind(members, which, first, share / share.sum()))
    return kinds


def _all_groups(subject: EstimatorInWorld, kinds: list[_Kind]) -> Means:
    """Every multiset of G kinds, weighted by its multinomial probability."""
    size, sums = subject.samples, _Sums(subject)
    # A^, its square and its sign, at each token of each episode.
    expected = [torch.zeros_like(subject.episodes.scores) for _ in range(3)]
    for kind in kinds:
        groups = torch.combinations(torch.arange(len(kind.rows)), size, with_replacement=True)
        times = torch.zeros(len(groups), len(kind.rows), dtype=torch.float64)
        times.scatter_add_(1, groups, torch.ones(groups.shape, dtype=torch.float64))
        log_p = math.lgamma(size + 1) - torch.lgamma(times + 1).sum(1)
        log_p = log_p + torch.xlogy(times, kind.share).sum(1)
        ids = torch.arange(len(groups)).repeat_interleave(size)
        a = subject.among(subject.columns, kind.rows[groups.flatten()], ids)
        weight = (log_p.exp() / size).repeat_interleave(size)[:, None]
        for mean, x in zip(expected, (a, a.square(), a.sign()), strict=True):
            total = torch.zeros(len(kind.rows), a.shape[1], dtype=a.dtype)
            total.index_add_(0, groups.flatten(), weight * x)
            mean[kind.members] = (total / kind.share[:, None])[kind.which]
    sums.add(*expected)
    return sums.done(0)


CALLS = 1_500  # at most, of an estimator that couples the batch

REPLICAS = 64  # partner draws, at most


def _paired(subject: EstimatorInWorld, kinds: list[_Kind]) -> Means:
    """Each kind of row in turn among the same partners, M times over."""
    size, batch = subject.samples, subject.component.couples == "batch"
    draw = generator(subject.seed, "diagnose/partners")
    count = sum(len(k.rows) for k in kinds)
    most = CALLS // count if batch else ROWS // (count * size)
    replicas = max(3, min(REPLICAS, most))
    sums = _Sums(subject)
    for m in range(replicas):
        columns = subject.draws(m)
        estimates = torch.zeros_like(subject.episodes.scores)
        for kind in kinds:
            drawn = torch.multinomial(kind.share, size - 1, replacement=True, generator=draw)
            rows = kind.rows if subject.fresh is None else kind.members
            partners = rows[drawn]
            if batch:
                rest = _draw_groups(subject, kinds, subject.prompts - 1, draw)
                ids = torch.arange(subject.prompts * size) // size
                batches = [torch.cat([row[None], partners, rest]) for row in rows]
                a = torch.stack([subject.among(columns, b, ids)[0] for b in batches])
            else:
                among = torch.cat([rows[:, None], partners.expand(len(rows), -1)], 1)
                ids = torch.arange(len(rows)).repeat_interleave(size)
                a = subject.among(columns, among.flatten(), ids)[::size]
            estimates[kind.members] = a[kind.which]
        sums.add(estimates, estimates.square(), estimates.sign())
    return sums.done(replicas)


def _draw_groups(
    subject: EstimatorInWorld, kinds: list[_Kind], n: int, draw: torch.Generator
) -> Tensor:
    """(n G,) rows of n further groups, each of one prompt."""
    prompt = torch.randint(len(kinds), (n,), generator=draw)
    rows = torch.empty(n, subject.samples, dtype=torch.long)
    for i, kind in enumerate(kinds):
        groups = (prompt == i).nonzero()[:, 0]
        need = len(groups) * subject.samples
        if need:
            picks = torch.multinomial(kind.share, need, replacement=True, generator=draw)
            rows[groups] = kind.rows[picks].view(len(groups), -1)
    return rows.flatten()


class _Sums:
    """Collects A^ of every episode, weighted by its probability, at each choice (S, V)."""

    def __init__(self, subject: EstimatorInWorld):
        e, tree = subject.episodes, subject.oracle.tree
        self.shape = (tree.states, tree.vocabulary)
        self.on = e.mask
        self.cell = (e.states * tree.vocabulary + e.actions)[self.on]
        self.weight = e.probability[:, None].expand_as(e.scores)[self.on]
        self.mass = self._gather(torch.ones_like(e.scores))
        self.means: list[Tensor] = []
        self.square: Tensor | float = 0.0
        self.sign: Tensor | float = 0.0

    def _gather(self, x: Tensor) -> Tensor:
        flat = torch.zeros(self.shape[0] * self.shape[1], dtype=torch.float64)
        return flat.index_add_(0, self.cell, self.weight * x[self.on].double()).view(self.shape)

    def add(self, a: Tensor, square: Tensor, sign: Tensor) -> None:
        self.means.append(self._gather(a) / self.mass.clamp(min=1e-300))
        self.square = self.square + self._gather(square)
        self.sign = self.sign + self._gather(sign)

    def done(self, replicas: int) -> Means:
        scale = len(self.means) * self.mass.clamp(min=1e-300)
        method = f"Monte Carlo, {replicas} draws" if replicas else "exact"
        mean = torch.stack(self.means)
        return Means(mean, self.square / scale, self.sign / scale, method)
