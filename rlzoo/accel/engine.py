"""The engine: it owns the networks and all of how they are computed, and gives plain tensors.

Placement on a device, several processes and weights spread over them, the split of rows into
passes, passes that are made early and kept, and what is done when memory runs out: nothing outside
of this package looks at these. `rlzoo.step` defines losses and when they are made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rlzoo.accel.hf_internals import by_onednn, sparse_gradients
from rlzoo.accel.passes import Passes, make_room
from rlzoo.accel.ranks import ALONE, Ranks
from rlzoo.accel.shard import whole, whole_tensor, whole_tensors
from rlzoo.errors import ModelError
from rlzoo.mdp.batch import Batch, concatenate, take
from rlzoo.plugin.columns import Columns

T = TypeVar("T")

# The outputs of an update's passes from which columns can be read.
READ_OFF = {"log_probs": "actor", "prediction": "critic"}
# Outputs that a pass of the policy can have.
STATS = ("log_probs", "entropy", "sum_pi_squared", "observation_nll", "log_pi")

Terms = dict[str, list[float]]  # metrics' terms, by name
# rows (R,) of a pass, their columns and outputs, and the share of d(loss)/d(log_probs) that comes
# from elsewhere -> the loss () and the metrics' terms ()
LossOf = Callable[
    [Tensor, Columns, Mapping[str, Tensor], "Tensor | None"],
    "tuple[Tensor, Mapping[str, list[Tensor]]]",
]


@dataclass
class Meter:
    """`tokens`: the number generated so far; evaluations have a meter of their own."""

    tokens: int = 0

    @contextmanager
    def apart(self) -> Iterator[Meter]:
        """In this context, tokens are counted by a separate meter."""
        other, before = Meter(), self.tokens
        try:
            yield other
        finally:
            other.tokens, self.tokens = self.tokens - before, before


class Kept:
    """The forward passes of an update, with gradient, made while columns were read; opaque outside
    of the engine. Empty once they are used, or when memory runs out."""

    def __init__(self, passes: list[tuple[Tensor, dict[str, Tensor]]]):
        self.passes = passes

    def __bool__(self) -> bool:
        return bool(self.passes)

    def __contains__(self, name: str) -> bool:
        return bool(self.passes) and name in self.passes[0][1]

    def read(self, name: str) -> Tensor:
        """A column (B, ...) that these passes made."""
        back = torch.cat([part for part, _ in self.passes]).argsort()
        return torch.cat([made[name].detach() for _, made in self.passes])[back]


NOTHING = Kept([])


@dataclass(frozen=True, eq=False)
class Engine:
    """The networks: `policy`, which is trained (`rlzoo.lm.policy`); the frozen `reference` and
    `teachers` (by domain; None for all others); `critic`, V(s_t) (`rlzoo.lm.critic`).

    passes: how rows are split. stats, entropy_grad: outputs, next to log-probs, of the policy's
    passes in an update, and whether the entropy has a gradient. meter: tokens sampled. notes: lines
    for the user; they gain one when memory runs out.
    """

    policy: Any
    passes: Passes
    reference: Any = None
    teachers: Mapping[str | None, Any] = field(default_factory=dict)
    critic: Any = None
    ranks: Ranks = ALONE
    sharded: bool = False
    stats: tuple[str, ...] = ("entropy",)
    entropy_grad: bool = True
    meter: Meter = field(default_factory=Meter)
    notes: list[str] = field(default_factory=list)

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Those that are trained, by name."""
        critic = {} if self.critic is None else {"critic": self.critic}
        return {"actor": self.policy.model, **critic}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The policy's columns in an update."""
        return ("log_probs", *self.stats)

    @property
    def shared(self) -> bool:
        """Whether the critic is a head on the policy's trunk."""
        return self.critic is not None and self.critic.trunk is None

    @property
    def alone(self) -> bool:
        """Whether this is the only process."""
        return self.ranks.count == 1

    @property
    def first(self) -> bool:
        """Whether this process writes files."""
        return self.ranks.first

    # ------------------------------------------------------------ sampling

    def shares(
        self, items: list[T], work: Callable[[list[T], int], Batch], needs: Iterable[str]
    ) -> Batch:
        """The batch that `work(items, number of the first)` makes of all items; each process works
        on a share of them, and all get the whole batch, with its tokens metered. needs: the models
        that the work calls, whose weights are whole then."""
        with self.whole(needs):
            if self.ranks.count == 1 or len(items) < self.ranks.count:  # fewer: each does them all
                return work(items, 0)
            mine, before = self.ranks.block(len(items)), self.meter.tokens
            batch = work(items[mine.start : mine.stop], mine.start)
        self.meter.tokens = before + sum(self.ranks.gather(self.meter.tokens - before))
        share = {n: x.cpu() if isinstance(x, Tensor) else x for n, x in batch.items()}
        return concatenate(self.ranks.gather(share), self.policy.pad_id, self.policy.device)

    def whole(self, needs: Iterable[str]) -> AbstractContextManager[None]:
        """In this context, spread weights of the policy, and of the frozen models among `needs`,
        are whole, so that processes can sample independently."""
        if not self.sharded:
            return nullcontext()
        frozen = {"reference": self.reference, "teacher": self.teachers.get(None)}
        policies = [self.policy, *(frozen[name] for name in needs if name in frozen)]
        return whole({m: None for p in policies if p is not None for m in p.model.modules()})

    # ------------------------------------------------------------ scores

    @torch.no_grad()
    def scores(
        self, columns: Columns, want: Iterable[str], kept: Kept = NOTHING
    ) -> dict[str, Tensor]:
        """Columns of `want`, by name: log_probs, entropy, sum_pi_squared (B, T) and observation_nll
        (B,) of the policy; ref_log_probs, full_kl; teacher_log_probs, teacher_kl; values (B, T) and
        last_values (B,) of the critic. kept: passes over these rows that may be read."""
        others = [p.model for p in (self.reference, *self.teachers.values()) if p is not None]
        with by_onednn(*self.networks.values(), *others):
            return self._scores(columns, set(want), kept)

    def _scores(self, columns: Columns, want: set[str], kept: Kept) -> dict[str, Tensor]:
        out = {name: kept.read(name) for name in want & READ_OFF.keys() if name in kept}
        stats = tuple(name for name in STATS if name in want - out.keys())
        if "full_kl" in want:
            out |= self._map(columns, lambda c: self.policy.full_kl(c, self.reference))
        if stats:
            out |= self._map(columns, partial(self.policy.log_prob_stats, want=stats))
        if "ref_log_probs" in want - out.keys():
            scored = self._map(columns, self.reference.log_prob_stats)
            out["ref_log_probs"] = scored["log_probs"]
        if taught := want & {"teacher_log_probs", "teacher_kl"}:
            out |= self._taught(columns, taught)
        if "values" in want:
            if "prediction" in kept:
                out |= self.critic.values(columns, kept.read("prediction"))
            else:
                out |= self._map(columns, self.critic.values)
        return out

    def _map(
        self, columns: Columns, function: Callable[[Columns], Mapping[str, Tensor]]
    ) -> Mapping[str, Tensor]:
        return self.passes.map(self.policy, columns, function)

    def _taught(self, columns: Columns, want: set[str]) -> dict[str, Tensor]:
        """Columns of each row by the teacher of its domain."""
        teachers = self.teachers
        domains = [name if name in teachers else None for name in columns["domains"]]
        if None in domains and None not in teachers:  # of a prompt that was typed
            raise ModelError(
                "teacher.path: there is no teacher for a prompt whose domain is not in "
                "teacher.domains"
            )
        if len(set(domains)) == 1:
            return self._by_teacher(columns, teachers[domains[0]], want)
        whole: dict[str, Tensor] = {}
        for domain in dict.fromkeys(domains):
            rows = torch.tensor([i for i, name in enumerate(domains) if name == domain])
            part = self._by_teacher(take(columns, rows), teachers[domain], want)
            for name, x in part.items():
                whole.setdefault(name, x.new_zeros(columns["response_mask"].shape))[rows] = x
        return whole

    def _by_teacher(self, columns: Columns, teacher: Any, want: set[str]) -> dict[str, Tensor]:
        map_over = partial(self.passes.map, teacher, columns)  # it may be the larger of the two
        if "teacher_kl" in want:
            scored = map_over(lambda c: self.policy.full_kl(c, teacher))
            return {"teacher_kl": scored["full_kl"], "teacher_log_probs": scored["ref_log_probs"]}
        return {"teacher_log_probs": map_over(teacher.log_prob_stats)["log_probs"]}

    # ------------------------------------------------------------ the update

    def ahead(self, columns: Columns, *, actor: bool) -> Kept:
        """The passes of an update on all these rows, if memory can hold them until then.

        actor: whether the update trains the actor."""
        if self.ranks.count > 1:
            return NOTHING

        def attempt() -> Kept:
            parts = self.passes.to_keep(self.policy, columns)
            # One network's passes are much to hold.
            alone = len(parts) > 1 and self.critic is not None and not self.shared
            names = [n for n in self.networks if n == "critic" or (actor and not alone)]
            return Kept([(part, self._outputs(take(columns, part), names)) for part in parts])

        with torch.enable_grad(), sparse_gradients(self._tables()):
            return self.passes.retry(attempt)

    def backward(
        self,
        columns: Columns,
        names: Sequence[str],
        loss_of: LossOf,
        *,
        rows: Tensor | None = None,
        couple: Callable[[Columns], Tensor] | None = None,
        kept: Kept = NOTHING,
    ) -> Terms:
        """Leave the gradient of a mini-batch in the weights of the networks `names`; returns the
        terms of its metrics, from all processes.

        rows: those (R,) whose pass may leave a gradient, all by default. couple: if the loss looks
        at several rows, d(loss)/d(log_probs) (B, T) from all rows' columns, the policy's among
        them; the chain rule carries it into the passes. kept: passes over all rows, which serve if
        they made all networks' outputs.
        """
        attempt = partial(self._backward, columns, names, loss_of, rows, couple, kept)
        return self.passes.retry(attempt, kept.passes.clear)

    def _backward(
        self,
        columns: Columns,
        names: Sequence[str],
        loss_of: LossOf,
        rows: Tensor | None,
        couple: Callable[[Columns], Tensor] | None,
        kept: Kept,
    ) -> Terms:
        made_by = {name: output for output, name in READ_OFF.items()}
        passes = kept.passes
        if not all(made_by[name] in kept for name in names):
            rows = torch.arange(len(columns["response_mask"])) if rows is None else rows
            parts = self.passes.parts(self.policy, take(columns, rows), grad=True)
            passes = [(rows[part], {}) for part in parts]
        upstream = None
        if couple is not None and len(passes) > 1:
            score = partial(self.policy.log_prob_stats, want=self.stats)
            with torch.no_grad():  # in the update's own passes
                scored = self.passes.over(columns, [part for part, _ in passes], score)
            upstream = couple({**columns, **scored})
        for network in self.networks.values():
            network.zero_grad(set_to_none=True)
        terms: dict[str, list[Tensor]] = defaultdict(list)
        alone = self.ranks.count == 1
        for part, made in passes if alone else self.ranks.share(passes):
            micro = take(columns, part)
            if not made:
                with sparse_gradients(self._tables()):
                    made = self._outputs(micro, names)
            # A pass may cover all networks: keep what these ones made.
            outputs = {n: x for n, x in made.items() if READ_OFF.get(n, "actor") in names}
            loss, more = loss_of(part, micro, outputs, None if upstream is None else upstream[part])
            for name, addends in more.items():
                terms[name] += addends
            if loss.requires_grad:
                loss.backward()
        if not alone and self.sharded and self.ranks.idle(len(passes)):
            # Passes are collectives here, also on a process with fewer of them than others.
            spare = self._outputs(take(columns, passes[0][0]), names)
            torch.stack([x.sum() for x in spare.values() if x.requires_grad]).sum().mul(
                0
            ).backward()
        self._join_gradients()
        return self._joined(terms)

    def _outputs(self, columns: Columns, names: Sequence[str]) -> dict[str, Tensor]:
        """The differentiable outputs of an update of the networks `names`: the policy's `log_probs`
        and `stats`, the critic's `prediction`."""
        out: dict[str, Tensor] = {}
        both = self.shared and len(names) > 1
        if "actor" in names:
            out = self.policy.log_prob_stats(
                columns,
                want=(*self.stats, "values") if both else self.stats,
                entropy_grad=self.entropy_grad,
                accumulate=not self.sharded,  # see `_tables`
            )
        if "critic" in names:
            out["prediction"] = out.pop("values") if both else self.critic.predict(columns)
        return out

    def _tables(self) -> list[nn.Embedding]:
        """Embeddings whose gradient a pass leaves sparse, for the rows that it reads, so that
        passes leave nothing as large as the vocabulary each; the head's they add in place. None of
        weights that are spread over processes: those gradients leave at once."""
        trunks = [self.policy.model, *([self.critic.trunk] if self.critic else [])]
        return [] if self.sharded else [t for x in trunks if x is not None for t in _embeddings(x)]

    def _join_gradients(self) -> None:
        for network in self.networks.values():
            for weight in network.parameters():
                if weight.grad is not None and weight.grad.is_sparse:
                    make_room(weight)  # the passes' activations are free by now
                    weight.grad = weight.grad.to_dense()
        if self.ranks.count > 1:
            self.ranks.sum_gradients(self.networks.values())

    def _joined(self, terms: Mapping[str, list[Tensor]]) -> Terms:
        local = {
            n: torch.stack([x.detach().double() for x in xs]).tolist() for n, xs in terms.items()
        }
        if self.ranks.count == 1:
            return local
        total = self.ranks.sum({name: sum(values) for name, values in local.items()})
        return {name: [value] for name, value in total.items()}

    def step(
        self, name: str, optimizer: torch.optim.Optimizer, limit: float | None, *, finite: bool
    ) -> float | None:
        """Clip the gradient of a network to the norm `limit` and take an optimizer step, unless
        the gradient, or the loss according to `finite`, is not finite. The norm; None if it took no
        step."""
        trained = [p for p in self.networks[name].parameters() if p.requires_grad]
        if all(p.grad is None for p in trained):  # no row had a gradient; momentum continues
            for p in trained:
                p.grad = torch.zeros_like(p)
        limit = math.inf if limit is None else limit
        clipped = nn.utils.clip_grad_norm_(trained, limit, foreach=True)
        norm = float(whole_tensor(clipped) if self.sharded else clipped)
        taken = finite and math.isfinite(norm)
        if taken:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)  # not to be held while the next batch is sampled
        return norm if taken else None

    # ------------------------------------------------------------ several processes

    def gather(self, item: T) -> list[T]:
        """Every process's `item`, the first's first, once all of them are here."""
        return self.ranks.gather(item)

    def whole_parts(
        self, parts: Iterable[tuple[str, dict[str, Tensor]]]
    ) -> Iterator[tuple[str, dict[str, Tensor] | None]]:
        """Named tensors with whole weights, for the process that writes them; None for the others.
        All processes are here."""
        for name, tensors in parts:
            whole = whole_tensors(tensors, keep=self.first)
            yield name, whole if self.first else None

    def weights(self) -> dict[str, Tensor] | None:
        """The policy's whole weights, for the process that writes them; None if they are not spread
        or another one writes. All processes are here."""
        if not self.sharded:
            return None
        return whole_tensors(self.policy.model.state_dict(keep_vars=True), keep=self.first)


def _embeddings(trunk: Any) -> list[nn.Embedding]:
    """The trunk's table of embeddings; none if it names none, as a decoder's wrapper may."""
    try:
        table = trunk.get_input_embeddings()
    except NotImplementedError:
        return []
    return [table] if type(table) is nn.Embedding else []
