"""E[A^ | s, a] of an estimator: from every group, of one row or more, or from sampled partners."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlzoo.mdp.noise import generator
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld


@dataclass
class Means:
    """A^ at each choice, over R replicas (1 if exact). mean (R, S, V); square, sign (S, V).

    sign: that of A^ minus its mean in the state, which is a harmless baseline.
    pull: (R, S, V) of A^ as the loss weighs it.
    """

    mean: Tensor
    square: Tensor
    sign: Tensor
    pull: Tensor
    method: str


ROWS = 400_000  # that an estimator is called on, at most, for a mean


def means(subject: EstimatorInWorld) -> Means:
    """E[A^ | s, a] and related moments."""
    kinds, size = _kinds(subject), 1 if subject.couples == "row" else subject.samples
    groups = max(math.comb(len(kind.rows) + size - 1, size) for kind in kinds)
    if subject.couples == "batch" or (size > 1 and groups * size * len(kinds) > ROWS):
        return _paired(subject, kinds)
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
        seen = [subject.episodes.mask.double()]
        if subject.loss is not None:
            seen.append(subject.loss.weight)
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
    sums = _Sums(subject)
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
    sums.add(*expected)
    if size == 1:
        sums.drawn.append(expected[0])
        return sums.done(0)
    base, sign = sums.baseline(), torch.zeros_like(subject.episodes.scores)
    for kind, which, weight, a in drawn:
        for k in range(len(kind.rows)):
            mine, members = which == k, kind.members[kind.which == k]
            gap = a[mine, None] - base[members]  # (groups, members, T)
            share = weight[mine] / weight[mine].sum()
            sign[members] = (share[:, None, None] * _sign(gap)).sum(0)
    sums.sign = sums.gather(sign)
    return sums.done(0)


def _sign(gap: Tensor) -> Tensor:
    """The sign of A^ minus its baseline, 0 within rounding."""
    return torch.where(gap.abs() < 1e-9, 0, gap).sign()


CALLS = 1_500  # at most, of an estimator that couples the batch

REPLICAS = 64  # partner draws, at most


def _paired(subject: EstimatorInWorld, kinds: list[_Kind]) -> Means:
    """Each kind of row in turn among the same partners, M times over."""
    size, batch = subject.samples, subject.couples == "batch"
    draw = generator(subject.seed, "diagnose/partners")
    count = sum(len(k.rows) for k in kinds)
    most = CALLS // count if batch else ROWS // (count * size)
    replicas = max(3, min(REPLICAS, most))
    sums, level = _Sums(subject), _levels(subject, kinds)
    columns = subject.columns
    for _ in range(replicas):
        estimates, pulls = (torch.zeros_like(subject.episodes.scores) for _ in range(2))
        for kind, usual in zip(kinds, level, strict=True):
            drawn = torch.empty(0, dtype=torch.long)
            if size > 1:
                drawn = torch.multinomial(kind.share, size - 1, replacement=True, generator=draw)
            rows = kind.rows
            partners = rows[drawn]
            if batch:
                rest = _draw_groups(subject, kinds, subject.prompts - 1, draw)
                ids = torch.arange(subject.prompts * size) // size
                batches = [torch.cat([row[None], partners, rest]) for row in rows]
                made = [(subject.among(columns, b, ids), b) for b in batches]
                a = torch.stack([x[0] for x, _ in made])
                pull = torch.stack([subject.in_groups(x, b, ids)[0] for x, b in made])
            else:
                among = torch.cat([rows[:, None], partners.expand(len(rows), -1)], 1).flatten()
                ids = torch.arange(len(rows)).repeat_interleave(size)
                x = subject.among(columns, among, ids)
                a, pull = x[::size], subject.in_groups(x, among, ids)[::size]
            estimates[kind.members] = a[kind.which]
            # What these partners add to all actions alike is not a baseline once lengths weigh it:
            # taken off, but for what it is on average.
            mine = pull[kind.which]
            pulls[kind.members] = mine - _level(subject, kind.members, mine) + usual
        sums.add(estimates, estimates.square(), subject.weight * pulls)
        sums.drawn.append(estimates)
    return sums.done(replicas)


def _level(subject: EstimatorInWorld, rows: Tensor, a: Tensor) -> Tensor:
    """() the mean over tokens of A^ of rows, as likely as they are."""
    on = subject.episodes.mask[rows] * subject.episodes.probability[rows, None]
    return (on * a).sum() / on.sum()


def _levels(subject: EstimatorInWorld, kinds: list[_Kind]) -> list[Tensor]:
    """E[A^] over tokens for each prompt, of groups drawn at random."""
    draw = generator(subject.seed, "diagnose/levels")
    size, e = subject.samples, subject.episodes
    alone = subject.couples == "batch"
    calls, groups = (CALLS // 8, subject.prompts) if alone else (1, ROWS // (4 * size))
    total, count = (torch.zeros(len(kinds), dtype=torch.float64) for _ in range(2))
    for _ in range(calls):
        rows = _draw_groups(subject, kinds, groups, draw)
        ids = torch.arange(len(rows)) // size
        a = subject.in_groups(subject.among(subject.columns, rows, ids), rows, ids)
        on = e.mask[rows]
        total.index_add_(0, e.prompt[rows], torch.where(on, a, 0).sum(1))
        count.index_add_(0, e.prompt[rows], on.sum(1).double())
    return list(total / count.clamp(min=1))


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
    """Collects A^ of every episode, weighted by its probability, at each choice (S, V).

    drawn: A^ (B, T) of each replica, for the sign, unless `sign` is put there.
    """

    def __init__(self, subject: EstimatorInWorld):
        e, tree = subject.episodes, subject.oracle.tree
        self.subject = subject
        self.shape = (tree.states, tree.vocabulary)
        self.on = e.mask
        self.states = e.states.clamp(min=0)
        self.cell = (e.states * tree.vocabulary + e.actions)[self.on]
        self.weight = e.probability[:, None].expand_as(e.scores)[self.on]
        self.mass = self.gather(torch.ones_like(e.scores))
        self.means: list[Tensor] = []
        self.pulls: list[Tensor] = []
        self.drawn: list[Tensor] = []
        self.square: Tensor | float = 0.0
        self.sign: Tensor | None = None

    def gather(self, x: Tensor) -> Tensor:
        flat = torch.zeros(self.shape[0] * self.shape[1], dtype=torch.float64)
        return flat.index_add_(0, self.cell, self.weight * x[self.on].double()).view(self.shape)

    def add(self, a: Tensor, square: Tensor, pull: Tensor) -> None:
        self.means.append(self._per_choice(a))
        self.pulls.append(self._per_choice(pull))
        self.square = self.square + self.gather(square)

    def _per_choice(self, x: Tensor) -> Tensor:
        return self.gather(x) / self.mass.clamp(min=1e-300)

    def baseline(self) -> Tensor:
        """(B, T) the mean of A^ in each token's state."""
        mean = torch.stack(self.means).mean(0)
        return (self.subject.oracle.pi * mean).sum(-1)[self.states]

    def done(self, replicas: int) -> Means:
        count, mass = len(self.means), self.mass.clamp(min=1e-300)
        if self.sign is None:
            signs = [_sign(a - self.baseline()) for a in self.drawn]
            self.sign = self.gather(torch.stack(signs).mean(0))
        mean, square = torch.stack(self.means), torch.as_tensor(self.square) / (count * mass)
        method = f"Monte Carlo, {replicas} draws" if replicas else "exact"
        return Means(mean, square, self.sign / mass, self._whitened(mean, square), method)

    def _whitened(self, mean: Tensor, square: Tensor) -> Tensor:
        """(R, S, V) the weights in the gradient; with whitening, those of a growing batch:
        an affine map."""
        pull, loss = torch.stack(self.pulls), self.subject.loss
        if loss is None or loss.whiten != "batch":
            return pull
        share = self.mass / self.mass.sum()
        middle = (share * mean.mean(0)).sum()
        spread = ((share * square).sum() - middle.square()).clamp(min=0)
        return (pull - middle * self._per_choice(loss.weight)) * (spread + 1e-8).rsqrt()
