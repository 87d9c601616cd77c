"""E[A^ | s, a] of an estimator, by every group of rows that differ for it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlzoo_lab.kit.oracle.subject import EstimatorInWorld


@dataclass
class Means:
    """A^ at each choice, all (S, V): its mean, its square, the sign of A^ minus its mean in the
    state, which is a harmless baseline, and its pull, which is A^ as the loss weighs it."""

    mean: Tensor
    square: Tensor
    sign: Tensor
    pull: Tensor


ROWS = 400_000  # that an estimator is called on, at most


def means(subject: EstimatorInWorld) -> Means | None:
    """None if A^ depends on the batch, or on more groups than can be enumerated."""
    kinds, size = _kinds(subject), 1 if subject.couples == "row" else subject.samples
    groups = max(math.comb(len(kind.rows) + size - 1, size) for kind in kinds)
    if subject.couples == "batch" or (size > 1 and groups * size * len(kinds) > ROWS):
        return None
    return _all_groups(subject, kinds, size)


@dataclass
class _Kind:
    """The rows of one prompt, distinguished by the estimator's inputs."""

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
        seen = [subject.episodes.mask.double(), subject.weight]
        listed = False
        for name in subject.reads:
            x = columns[name]
            listed |= isinstance(x, list)
            if isinstance(x, Tensor) and name != "group_ids" and len(x) == size:
                seen.append(x.double().reshape(size, -1))
        if listed:  # texts: no two rows are the same
            which = torch.arange(len(members))
        else:
            digits = (torch.cat(seen, 1)[members] * 1e9).round()
            which = torch.unique(digits, dim=0, return_inverse=True)[1]
        share = torch.zeros(int(which.max()) + 1, dtype=p.dtype).index_add_(0, which, p[members])
        first = torch.full((len(share),), size).scatter_reduce_(0, which, members, "amin")
        kinds.append(_Kind(members, which, first, share / share.sum()))
    return kinds


def _all_groups(subject: EstimatorInWorld, kinds: list[_Kind], size: int) -> Means:
    """Every multiset of `size` kinds, weighted by its multinomial probability."""
    # A^, its square and what the loss makes of it, at each token of each episode.
    expected = [torch.zeros_like(subject.episodes.scores) for _ in range(3)]
    drawn = []
    for kind in kinds:
        groups = torch.combinations(torch.arange(len(kind.rows)), size, with_replacement=True)
        share = kind.share
        if size > 1:
            times = torch.zeros(len(groups), len(kind.rows), dtype=torch.float64)
            times.scatter_add_(1, groups, torch.ones(groups.shape, dtype=torch.float64))
            log_p = math.lgamma(size + 1) - torch.lgamma(times + 1).sum(1)
            share = (log_p + torch.xlogy(times, kind.share).sum(1)).exp()
        ids, which = torch.arange(len(groups)).repeat_interleave(size), groups.flatten()
        rows = kind.rows[which]
        a = subject.among(subject.columns, rows, ids)
        weight = (share / size).repeat_interleave(size)
        pull = subject.weight[rows] * subject.in_groups(a, rows, ids)
        for mean, x in zip(expected, (a, a.square(), pull), strict=True):
            total = torch.zeros(len(kind.rows), a.shape[1], dtype=a.dtype)
            total.index_add_(0, which, weight[:, None] * x)
            mean[kind.members] = (total / kind.share[:, None])[kind.which]
        drawn.append((kind, which, weight, a))
    at = _Choices(subject)
    mean, square, pull = map(at.mean, expected)
    base = (subject.oracle.pi * mean).sum(-1)[subject.episodes.states.clamp(min=0)]  # (B, T)
    sign = _sign(expected[0] - base)
    for kind, which, weight, a in drawn if size > 1 else ():
        for k in range(len(kind.rows)):
            mine, members = which == k, kind.members[kind.which == k]
            gap = a[mine, None] - base[members]  # (groups, members, T)
            share = weight[mine] / weight[mine].sum()
            sign[members] = (share[:, None, None] * _sign(gap)).sum(0)
    if subject.whiten == "batch":  # of a growing batch: an affine map
        share = at.mass / at.mass.sum()
        middle = (share * mean).sum()
        spread = ((share * square).sum() - middle.square()).clamp(min=0)
        pull = (pull - middle * at.mean(subject.weight)) * (spread + 1e-8).rsqrt()
    return Means(mean, square, at.mean(sign), pull)


def _sign(gap: Tensor) -> Tensor:
    """The sign of A^ minus its baseline, 0 within rounding."""
    return torch.where(gap.abs() < 1e-9, 0, gap).sign()


class _Choices:
    """Means over the episodes' tokens (B, T) at each choice (S, V), as likely as the episodes."""

    def __init__(self, subject: EstimatorInWorld):
        e, tree = subject.episodes, subject.oracle.tree
        self.shape, self.on = (tree.states, tree.vocabulary), e.mask
        self.cell = (e.states * tree.vocabulary + e.actions)[self.on]
        self.weight = e.probability[:, None].expand_as(e.scores)[self.on]
        self.mass = self._sum(torch.ones_like(e.scores))

    def _sum(self, x: Tensor) -> Tensor:
        flat = torch.zeros(self.shape[0] * self.shape[1], dtype=torch.float64)
        return flat.index_add_(0, self.cell, self.weight * x[self.on].double()).view(self.shape)

    def mean(self, x: Tensor) -> Tensor:
        return self._sum(x) / self.mass.clamp(min=1e-300)
