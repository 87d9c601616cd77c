"""Bias and variance of an advantage estimator, any estimator, against the exact truth.

    b(s, a) = E[A^ | s, a] - A(s, a)        b_perp = b - sum_a pi(a|s) b

With sum aggregation the gradient of a batch is the mean over rows of sum_t A^_t d log pi(a_t|s_t),
and in the logits E[g^] - g* = d(s) pi(a|s) b_perp(s, a): what a baseline adds to b is harmless, so
b_perp is the bias that counts.

How the mean over A^ is taken depends on how far one row's A^ depends on others:
- by itself: one call on all episodes; exact.
- on its group, and the columns that it sees tell few rows apart (an outcome and a length, say):
  one call on every multiset of G of them; exact.
- else, or with columns that hold chance: every episode in turn among the same M draws of partners
  ("paired": what a draw adds to all actions alike cancels in b_perp), with the standard error.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlzoo.component import Component
from rlzoo.noise import generator
from rlzoo.oracle import Episodes, Oracle

ROWS = 400_000  # that an estimator is called on, at most, for a mean
CALLS = 1_500  # at most, of one that couples the batch
REPLICAS = 64  # partner draws, at most
POOL = 65_536  # rows drawn for the batches
BATCHES = 256  # of a size, at most
STEP_KL = 0.01  # nats per response, of the steps that are compared
STEPS = 32  # of these that a step is taken along

Columns = dict[str, Any]
# Columns of some episodes (rows (B,)), for the m-th draw of whatever is random in them.
Fresh = Callable[[int, Tensor], Columns]


@dataclass
class Subject:
    """An estimator with its options, asked about the episodes of an oracle."""

    component: Component
    options: Mapping[str, Any]
    oracle: Oracle
    episodes: Episodes
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
        out: Columns = {"response_mask": columns["response_mask"][rows]}
        for name in self.component.needs:
            x = columns[name]
            if isinstance(x, list):
                out[name] = [x[i] for i in rows.tolist()]
            else:
                out[name] = x[rows] if len(x) == len(self.episodes.probability) else x
        out["group_ids"] = group_ids
        return out

    def among(self, columns: Columns, rows: Tensor, group_ids: Tensor) -> Tensor:
        """A^ of rows in groups; those of rows that leave the loss are 0."""
        out = self(self.take(columns, rows, group_ids))
        return out if self.kept is None else out * self.kept[rows, None]

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
    rows: int

    @property
    def exact(self) -> bool:
        return self.method == "exact"


def means(subject: Subject) -> Means:
    """E[A^ | s, a], E[A^^2 | s, a] and E[sign A^ | s, a]."""
    if subject.component.couples == "row":
        found = _row_by_row(subject)
    else:
        kinds = _kinds(subject)
        whole = subject.component.couples == "group" and subject.fresh is None
        count = max(
            (math.comb(len(k.rows) + subject.samples - 1, subject.samples) for k in kinds),
            default=0,
        )
        if whole and count * subject.samples * len(kinds) <= ROWS:
            found = _all_groups(subject, kinds)
        else:
            found = _paired(subject, kinds)
    return found


def _row_by_row(subject: Subject) -> Means:
    rows = torch.arange(len(subject.episodes.probability))
    count = 1
    if subject.fresh:
        count = max(4, min(16, ROWS // (8 * len(rows))))
    sums = _Sums(subject)
    for m in range(count):
        columns = subject.draws(m)
        a = subject.among(columns, rows, columns["group_ids"])
        sums.add(a, a.square(), a.sign())
    return sums.done(count if subject.fresh else 0, count * len(rows))


@dataclass
class _Kind:
    """The rows of one prompt, told apart by what the estimator sees."""

    members: Tensor  # (b,) rows of the episodes
    which: Tensor  # (b,) the kind of each, 0 .. K - 1
    rows: Tensor  # (K,) a row of each kind
    share: Tensor  # (K,) probability given the prompt


def _kinds(subject: Subject) -> list[_Kind]:
    found = []
    p, columns = subject.episodes.probability, subject.columns
    size = len(p)
    for prompt in range(subject.oracle.tree.prompts):
        members = (subject.episodes.prompt == prompt).nonzero()[:, 0]
        parts = [subject.episodes.mask.double()]
        if subject.kept is not None:
            parts.append(subject.kept.double()[:, None])
        listed = subject.fresh is not None
        for name in subject.component.needs:
            x = columns[name]
            listed |= isinstance(x, list)
            if isinstance(x, Tensor) and name != "group_ids" and len(x) == size:
                parts.append(x.double().reshape(size, -1))
        if listed:  # texts, or fresh draws: no two rows are the same
            which = torch.arange(len(members))
        else:
            seen = (torch.cat(parts, 1)[members] * 1e9).round()
            which = torch.unique(seen, dim=0, return_inverse=True)[1]
        share = torch.zeros(int(which.max()) + 1, dtype=p.dtype).index_add_(0, which, p[members])
        first = torch.full((len(share),), size).scatter_reduce_(0, which, members, "amin")
        found.append(_Kind(members, which, first, share / share.sum()))
    return found


def _all_groups(subject: Subject, kinds: list[_Kind]) -> Means:
    """Every multiset of G kinds, weighted by its multinomial probability."""
    size, sums, rows = subject.samples, _Sums(subject), 0
    spread = []
    for kind in kinds:
        groups = torch.combinations(torch.arange(len(kind.rows)), size, with_replacement=True)
        times = torch.zeros(len(groups), len(kind.rows), dtype=torch.float64)
        times.scatter_add_(1, groups, torch.ones(groups.shape, dtype=torch.float64))
        log_p = math.lgamma(size + 1) - torch.lgamma(times + 1).sum(1)
        log_p = log_p + torch.xlogy(times, kind.share).sum(1)
        ids = torch.arange(len(groups)).repeat_interleave(size)
        a = subject.among(subject.columns, kind.rows[groups.flatten()], ids)
        weight = (log_p.exp() / size).repeat_interleave(size)[:, None]
        each = []
        for x in (a, a.square(), a.sign()):
            total = torch.zeros(len(kind.rows), a.shape[1], dtype=a.dtype)
            total.index_add_(0, groups.flatten(), weight * x)
            each.append((total / kind.share[:, None])[kind.which])
        spread.append(each)
        rows += len(a)
    out = [torch.zeros_like(subject.episodes.scores) for _ in range(3)]
    for kind, each in zip(kinds, spread, strict=True):
        for whole, part in zip(out, each, strict=True):
            whole[kind.members] = part
    sums.add(*out)
    return sums.done(0, rows)


def _paired(subject: Subject, kinds: list[_Kind]) -> Means:
    """Each kind of row in turn among the same partners, M times over."""
    size, batch = subject.samples, subject.component.couples == "batch"
    draw = generator(subject.seed, "diagnose/partners")
    count = sum(len(k.rows) for k in kinds)
    others = subject.prompts * size - 1 if batch else size - 1
    most = CALLS // count if batch else ROWS // (count * size)
    replicas = max(3, min(REPLICAS, most))
    sums = _Sums(subject)
    for m in range(replicas):
        columns = subject.draws(m)
        out = torch.zeros_like(subject.episodes.scores)
        for kind in kinds:
            drawn = torch.multinomial(kind.share, size - 1, replacement=True, generator=draw)
            own = kind.rows if subject.fresh is None else kind.members
            partners = own[drawn]
            if batch:
                rest = _draw_groups(subject, kinds, subject.prompts - 1, draw)
                ids = torch.arange(others + 1) // size
                a = torch.stack(
                    [
                        subject.among(columns, torch.cat([row[None], partners, rest]), ids)[0]
                        for row in own
                    ]
                )
            else:
                rows = torch.cat([own[:, None], partners.expand(len(own), -1)], 1)
                ids = torch.arange(len(own)).repeat_interleave(size)
                a = subject.among(columns, rows.flatten(), ids)[::size]
            out[kind.members] = a[kind.which]
        sums.add(out, out.square(), out.sign())
    return sums.done(replicas, replicas * count * (others + 1))


def _draw_groups(subject: Subject, kinds: list[_Kind], n: int, draw: torch.Generator) -> Tensor:
    """(n G,) rows of n further groups, each of one prompt."""
    prompt = torch.randint(len(kinds), (n,), generator=draw)
    rows = torch.empty(n, subject.samples, dtype=torch.long)
    for i, kind in enumerate(kinds):
        own = (prompt == i).nonzero()[:, 0]
        need = len(own) * subject.samples
        if need:
            picks = torch.multinomial(kind.share, need, replacement=True, generator=draw)
            rows[own] = kind.rows[picks].view(len(own), -1)
    return rows.flatten()


class _Sums:
    """Collects A^ of every episode, weighted by its probability, at each choice (S, V)."""

    def __init__(self, subject: Subject):
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

    def done(self, replicas: int, rows: int) -> Means:
        scale = len(self.means) * self.mass.clamp(min=1e-300)
        method = f"Monte Carlo, {replicas} draws" if replicas else "exact"
        return Means(
            torch.stack(self.means), self.square / scale, self.sign / scale, method, rows
        )  # fmt: skip


# ---------------------------------------------------------------- the numbers


@dataclass
class Report:
    """What is known of one estimator. Means are over tokens as visited; `_se`: standard errors,
    0 where exact."""

    b_perp2: float
    b_perp2_se: float
    bias2: float
    variance: float
    squared_error: float
    sign: float
    cosine: float
    cosine_se: float
    scale: float
    snr: float
    gain: float
    method: str
    batches: dict[int, dict[str, float]] = field(default_factory=dict)


def truth(subject: Subject) -> Tensor:
    """g* (S, V) in the states that rows reach."""
    return torch.where(_reached(subject), subject.oracle.gradient(), 0)


def expected_gradient(subject: Subject, found: Means) -> Tensor:
    """E[g^] (S, V), per row, with sum aggregation."""
    return _gradient(subject, found.mean.mean(0))


def b_perp(subject: Subject, mean: Tensor) -> Tensor:
    """b - sum_a pi b (..., S, V) of E[A^ | s, a], 0 in states that no row reaches."""
    b = mean - subject.oracle.advantages
    return torch.where(_reached(subject), b - (subject.oracle.pi * b).sum(-1, keepdim=True), 0)


def _gradient(subject: Subject, mean: Tensor) -> Tensor:
    o = subject.oracle
    centred = mean - (o.pi * mean).sum(-1, keepdim=True)
    return torch.where(_reached(subject), o.visits[:, None] * o.pi * centred, 0)


def _reached(subject: Subject) -> Tensor:
    """(S, 1): all states but those that lie behind the length at which rows are cut."""
    reached = torch.zeros(subject.oracle.tree.states, dtype=torch.bool)
    reached[subject.episodes.states[subject.episodes.mask]] = True
    return reached[:, None]


def report(subject: Subject, *, sizes: tuple[int, ...] = (), kl: float = STEP_KL) -> Report:
    """Every number of one estimator. kl: nats per response of the steps that are compared."""
    o, found = subject.oracle, means(subject)
    star, reached = truth(subject), _reached(subject)
    weight = torch.where(reached, o.visits[:, None] * o.pi, 0)
    weight = weight / weight.sum()
    a = o.advantages

    def numbers(mean: Tensor) -> Tensor:
        """(b_perp^2, bias^2, cosine) of replicas (R, S, V), freed of what chance adds."""
        b = torch.where(reached, mean - a, 0)
        g = _gradient(subject, mean)
        along = (g.mean(0) * star).sum()
        length = _square(g, torch.ones_like(star)).clamp(min=0).sqrt()
        cosine = along / (length * star.norm()).clamp(min=1e-300)
        return torch.stack([_square(b_perp(subject, mean), weight), _square(b, weight), cosine])

    best = numbers(found.mean)
    error = _jackknife(numbers, found.mean)
    mean = found.mean.mean(0)
    g = expected_gradient(subject, found)
    squared_error = float((weight * (found.square - 2 * a * mean + a.square())).sum())
    right = (1 + a.sign() * found.sign) / 2
    # Of one row: its states are distinct, so the squared norm is a sum over its tokens.
    norm = 1 - 2 * o.pi + o.pi.square().sum(-1, keepdim=True)
    total = float((torch.where(reached, o.visits[:, None] * o.pi, 0) * found.square * norm).sum())
    signal = float(_square(_gradient(subject, found.mean), torch.ones_like(g)).clamp(min=0))
    out = Report(
        b_perp2=float(best[0]),
        b_perp2_se=float(error[0]),
        bias2=float(best[1]),
        variance=squared_error - float(best[1]),
        squared_error=squared_error,
        sign=float((weight * a.abs() * right).sum() / (weight * a.abs()).sum().clamp(min=1e-300)),
        cosine=float(best[2].clamp(-1, 1)),
        cosine_se=float(error[2]),
        scale=float((g * star).sum() / star.square().sum().clamp(min=1e-300)),
        snr=signal / max(total - signal, 1e-300),
        gain=_gain(o, g[None], star, kl)[0],
        method=found.method,
    )
    if sizes:
        out.batches = _batches(subject, sizes, star, kl)
    return out


def _square(x: Tensor, weight: Tensor) -> Tensor:
    """sum weight E[x]^2 of replicas x (R, S, V): pairs of different ones only, so that their
    spread does not count as bias."""
    n = len(x)
    if n == 1:
        return (weight * x[0].square()).sum()
    apart = x.sum(0).square() - x.square().sum(0)
    return (weight * apart).sum() / (n * (n - 1))


def _jackknife(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    n = len(x)
    if n < 3:
        return torch.zeros_like(function(x))
    keep = torch.arange(n)
    each = torch.stack([function(x[keep != i]) for i in range(n)])
    return ((n - 1) * each.var(0, correction=0)).sqrt()


# ---------------------------------------------------------------- batches and steps


def _batches(
    subject: Subject, sizes: tuple[int, ...], star: Tensor, kl: float
) -> dict[int, dict[str, float]]:
    """Of drawn batches of each size: the mean cosine with g*, and the mean gain of a step."""
    rows, groups = _pool(subject, max(sizes))
    coupled = subject.component.couples == "batch"
    a = None if coupled else _advantages_of_pool(subject, rows, groups)
    out = {}
    for size in sizes:
        count = min(BATCHES, len(rows) // size)
        part = rows[: count * size]
        if a is None:
            blocks, ids = part.view(count, size), torch.arange(size) // subject.samples
            own = torch.cat([subject.among(subject.draws(0), block, ids) for block in blocks])
        else:
            own = a[: count * size]
        g = _sampled(subject, part, own, count)
        dots = (g * star).sum((-1, -2))
        cosines = dots / (g.norm(dim=(-1, -2)) * star.norm()).clamp(min=1e-300)
        few = g[:STEPS]
        gains = torch.tensor(_gain(subject.oracle, few, star, kl), dtype=torch.float64)
        out[size] = {
            "cosine": float(cosines.mean()),
            "cosine_se": _se(cosines),
            "gain": float(gains.mean()),
            "gain_se": _se(gains),
        }
    return out


def _se(x: Tensor) -> float:
    return float(x.std() / math.sqrt(len(x))) if len(x) > 1 else 0.0


def _pool(subject: Subject, most: int) -> tuple[Tensor, Tensor]:
    """Rows drawn in groups of one prompt, the same for every estimator of a world; (N,), (N,)."""
    draw = generator(subject.seed, "diagnose/pool")
    size = subject.samples
    count = max(POOL // (8 if subject.fresh else 1), 8 * most) // size
    e = subject.episodes
    prompt = torch.randint(subject.oracle.tree.prompts, (count,), generator=draw)
    rows = torch.empty(count, size, dtype=torch.long)
    for i in range(subject.oracle.tree.prompts):
        own, members = (prompt == i).nonzero()[:, 0], (e.prompt == i).nonzero()[:, 0]
        cdf = e.probability[members].cumsum(0)
        u = torch.rand(len(own), size, generator=draw, dtype=torch.float64) * cdf[-1]
        rows[own] = members[torch.searchsorted(cdf, u, right=True).clamp(max=len(members) - 1)]
    return rows.flatten(), torch.arange(count).repeat_interleave(size)


def _advantages_of_pool(subject: Subject, rows: Tensor, groups: Tensor) -> Tensor:
    """A^ of the pool, each row with columns of its own where these hold chance."""
    if not subject.fresh:
        return subject.among(subject.columns, rows, groups)
    columns = subject.fresh(-1, rows)
    out = subject({**columns, "group_ids": groups})
    return out if subject.kept is None else out * subject.kept[rows, None]


def _sampled(subject: Subject, rows: Tensor, a: Tensor, count: int) -> Tensor:
    """(count, S, V) the gradients of `count` batches of equal size."""
    o, e = subject.oracle, subject.episodes
    v, size = o.tree.vocabulary, len(rows) // count
    on = e.mask[rows]
    batch = torch.arange(count).repeat_interleave(size)[:, None].expand_as(on)
    cell = (batch * o.tree.states + e.states[rows]) * v + e.actions[rows]
    flat = torch.zeros(count * o.tree.states * v, dtype=torch.float64)
    flat.index_add_(0, cell[on], a[on])
    chosen = flat.view(count, o.tree.states, v) / size
    return chosen - o.pi * chosen.sum(-1, keepdim=True)


def _gain(oracle: Oracle, directions: Tensor, star: Tensor, kl: float) -> list[float]:
    """What steps along (N, S, V), each as long as KL(old || new) = kl allows, gain of the
    objective, as a share of what a step along g* gains."""
    both = torch.cat([star[None], directions])
    gains = oracle.improvement(oracle.logits + matched_step(oracle, both, kl))
    return (gains[1:] / gains[0].clamp(min=1e-300)).tolist()


def matched_step(oracle: Oracle, directions: Tensor, kl: float) -> Tensor:
    """Directions (N, S, V) scaled so that KL(policy || policy + step) = kl per response; a
    direction of zeros stays."""
    length = directions.norm(dim=(-1, -2), keepdim=True)
    unit = directions / length.clamp(min=1e-300)
    # KL grows about as the square of the step: a few corrections by the root find it.
    size = torch.ones_like(length)
    for _ in range(20):
        found = oracle.kl_to(oracle.logits + size * unit)[:, None, None]
        ratio = (kl / found.clamp(min=1e-12)).sqrt()
        if bool(((ratio - 1).abs() < 1e-7)[length > 1e-14].all()):
            break
        size = size * ratio.clamp(0.1, 10)
    return torch.where(length > 1e-14, size * unit, 0)
