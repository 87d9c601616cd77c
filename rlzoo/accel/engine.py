"""The engine: it owns the networks and all of how they are computed, and gives plain tensors.

Placement on a device, several processes and weights spread over them, the split of rows into
passes, passes that are made early and kept, and what is done when memory runs out: nothing outside
of this package looks at these. `rlzoo.step` defines losses and when they are made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rlzoo.accel.hf_internals import by_onednn, changed
from rlzoo.accel.passes import Passes, make_room
from rlzoo.accel.ranks import Ranks
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


class Kept(list[tuple[Tensor, dict[str, Tensor]]]):
    """The forward passes of an update, with gradient, made while columns were read: the rows of
    each and its outputs. Empty once they are used, or when memory runs out."""

    def has(self, name: str) -> bool:
        return bool(self) and name in self[0][1]

    def read(self, name: str) -> Tensor:
        """A column (B, ...) that these passes made."""
        back = torch.cat([part for part, _ in self]).argsort()
        return torch.cat([made[name].detach() for _, made in self])[back]


NOTHING = Kept()


@dataclass(frozen=True, eq=False)
class Engine:
    """The networks: `policy`, which is trained (`rlzoo.lm.policy`); the frozen `reference` and
    `teachers` (by domain; None for all others); `critic`, V(s_t) (`rlzoo.lm.critic`).

    passes: how rows are split, and over which processes. stats, entropy_grad: outputs, next to
    log-probs, of the policy's passes in an update, and whether the entropy has a gradient. meter:
    tokens sampled. notes: lines for the user.
    """

    policy: Any
    passes: Passes
    reference: Any = None
    teachers: Mapping[str | None, Any] = field(default_factory=dict)
    critic: Any = None
    stats: tuple[str, ...] = ("entropy",)
    entropy_grad: bool = True
    meter: Meter = field(default_factory=Meter)

    @property
    def ranks(self) -> Ranks:
        return self.passes.ranks

    @property
    def notes(self) -> list[str]:
        """Lines for the user; shown ones are removed."""
        return self.passes.notes

    @cached_property
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
        if not self.passes.collective:
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
        want, others = set(want), [self.reference, *self.teachers.values()]
        out = {name: kept.read(name) for name in want & READ_OFF.keys() if kept.has(name)}
        stats = tuple(name for name in STATS if name in want - out.keys())
        over = partial(self.passes.map, self.policy, columns)
        with by_onednn(*self.networks.values(), *(p.model for p in others if p is not None)):
            if "full_kl" in want:
                out |= over(lambda c: self.policy.full_kl(c, self.reference))
            if stats:
                out |= over(partial(self.policy.log_prob_stats, want=stats))
            if "ref_log_probs" in want - out.keys():
                out["ref_log_probs"] = over(self.reference.log_prob_stats)["log_probs"]
            if taught := want & {"teacher_log_probs", "teacher_kl"}:
                out |= self._taught(columns, taught)
            if "values" in want and kept.has("prediction"):
                out |= self.critic.values(columns, kept.read("prediction"))
            elif "values" in want:
                out |= over(self.critic.values)
        return out

    def _taught(self, columns: Columns, want: set[str]) -> dict[str, Tensor]:
        """Columns of each row by the teacher of its domain."""
        teachers = self.teachers
        domains = [name if name in teachers else None for name in columns["domains"]]
        if None in domains and None not in teachers:  # of a prompt that was typed
            raise ModelError(
                "teacher.path: there is no teacher for a prompt whose domain is not in "
                "teacher.domains"
            )
        whole: dict[str, Tensor] = {}
        for domain in dict.fromkeys(domains):
            teacher, rows = teachers[domain], [i for i, x in enumerate(domains) if x == domain]
            index = torch.tensor(rows)
            score, names = teacher.log_prob_stats, {"teacher_log_probs": "log_probs"}
            if "teacher_kl" in want:
                score = partial(self.policy.full_kl, other=teacher)
                names = {"teacher_kl": "full_kl", "teacher_log_probs": "ref_log_probs"}
            # By the teacher's size: it may be the larger of the two.
            scored = self.passes.map(teacher, take(columns, index), score)
            for name, of in names.items():
                x = scored[of]
                empty = x.new_zeros(columns["response_mask"].shape)
                whole.setdefault(name, empty)[index.to(x.device)] = x
        return whole

    # ------------------------------------------------------------ the update

    def ahead(self, columns: Columns, *, actor: bool) -> Kept:
        """The passes of an update on all these rows, if memory can hold them until then.

        actor: whether the update trains the actor."""
        if not self.alone:
            return Kept()

        def attempt() -> Kept:
            parts = self.passes.to_keep(self.policy, columns)
            # One network's passes are much to hold.
            alone = len(parts) > 1 and self.critic is not None and not self.shared
            names = [n for n in self.networks if n == "critic" or (actor and not alone)]
            return Kept([(part, self._outputs(take(columns, part), names)) for part in parts])

        with torch.enable_grad():
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
        ranks = self.ranks

        def attempt() -> Terms:
            passes: Sequence[tuple[Tensor, dict[str, Tensor]]] = kept
            if not all(kept.has(output) for output, name in READ_OFF.items() if name in names):
                chosen = torch.arange(len(columns["response_mask"])) if rows is None else rows
                parts = self.passes.parts(self.policy, take(columns, chosen), grad=True)
                passes = [(chosen[part], {}) for part in parts]
            upstream = None
            if couple is not None and len(passes) > 1:
                score = partial(self.policy.log_prob_stats, want=self.stats)
                with torch.no_grad():  # in the update's own passes
                    scored = self.passes.over(columns, [part for part, _ in passes], score)
                upstream = couple({**columns, **scored})
            for network in self.networks.values():
                network.zero_grad(set_to_none=True)
            terms: dict[str, list[Tensor]] = defaultdict(list)
            for part, made in passes[ranks.index :: ranks.count]:
                micro = take(columns, part)
                made = made or self._outputs(micro, names)
                # A pass may cover all networks: keep what these ones made.
                outputs = {n: x for n, x in made.items() if READ_OFF.get(n, "actor") in names}
                given = None if upstream is None else upstream[part]
                loss, more = loss_of(part, micro, outputs, given)
                for name, addends in more.items():
                    terms[name] += addends
                if loss.requires_grad:
                    loss.backward()
            if self.passes.collective and ranks.idle(len(passes)):
                # Passes are collectives here, also on a process with fewer of them than others.
                spare = self._outputs(take(columns, passes[0][0]), names).values()
                torch.stack([x.sum() for x in spare if x.requires_grad]).sum().mul(0).backward()
            self._join_gradients()
            local = {
                name: torch.stack([x.detach().double() for x in addends]).tolist()
                for name, addends in terms.items()
            }
            if self.alone:
                return local
            total: Terms = defaultdict(list)
            for share in ranks.gather({name: sum(values) for name, values in local.items()}):
                for name, value in share.items():
                    total[name].append(value)
            return {name: [sum(values)] for name, values in total.items()}

        return self.passes.retry(attempt, kept.clear)

    def _outputs(self, columns: Columns, names: Sequence[str]) -> dict[str, Tensor]:
        """The differentiable outputs of an update of the networks `names`: the policy's `log_probs`
        and `stats`, the critic's `prediction`."""
        out: dict[str, Tensor] = {}
        both = self.shared and len(names) > 1
        with changed(*((table, "sparse", True) for table in self._tables)):
            if "actor" in names:
                out = self.policy.log_prob_stats(
                    columns,
                    want=(*self.stats, "values") if both else self.stats,
                    entropy_grad=self.entropy_grad,
                    accumulate=not self.passes.collective,  # see `_tables`
                )
            if "critic" in names:
                out["prediction"] = out.pop("values") if both else self.critic.predict(columns)
        return out

    @cached_property
    def _tables(self) -> list[nn.Embedding]:
        """Embeddings whose gradient a pass leaves sparse, for the rows that it reads, so that
        passes leave nothing as large as the vocabulary each; the head's they add in place. None of
        weights that are spread over processes: those gradients leave at once."""
        if self.passes.collective:
            return []
        tables = []
        for trunk in filter(None, (self.policy.model, self.critic and self.critic.trunk)):
            with suppress(NotImplementedError):  # of a decoder's wrapper
                tables.append(trunk.get_input_embeddings())
        return [table for table in tables if type(table) is nn.Embedding]

    def _join_gradients(self) -> None:
        for network in self.networks.values():
            for weight in network.parameters():
                if weight.grad is not None and weight.grad.is_sparse:
                    make_room(weight)  # the passes' activations are free by now
                    weight.grad = weight.grad.to_dense()
        if not self.alone:
            self.ranks.sum_gradients(self.networks.values())

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
        norm = float(whole_tensor(clipped) if self.passes.collective else clipped)
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
        if not self.passes.collective:
            return None
        return whole_tensors(self.policy.model.state_dict(keep_vars=True), keep=self.first)
