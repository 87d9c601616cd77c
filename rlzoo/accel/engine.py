"""The forward and backward passes of an update, shared among ranks and computed ahead where memory
allows; no pass keeps a tensor as large as the vocabulary.

`rlzoo.step.update` defines the loss. Nothing here depends on losses, epochs or aggregations.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlzoo.accel.hf_internals import sparse_gradient
from rlzoo.accel.passes import Passes
from rlzoo.accel.ranks import Ranks
from rlzoo.mdp.batch import take

Columns = Mapping[str, Any]

# The rows (R,) of each pass, and what `Networks.forward` gave for them, with gradient; empty where
# the pass has not been made.
Forward = list[tuple[Tensor, dict[str, Tensor]]]

# The output of a network's pass.
MADE = {"actor": "log_probs", "critic": "prediction"}


class Networks(Protocol):
    """A policy and perhaps a critic: their passes go through `model` and `trunk`."""

    policy: Any
    critic: Any
    passes: Passes
    ranks: Ranks

    @property
    def shared(self) -> bool: ...
    @property
    def sharded(self) -> bool: ...
    def networks(self) -> dict[str, nn.Module]: ...
    def forward(self, columns: Columns, *, actor: bool, critic: bool) -> dict[str, Tensor]: ...


def ahead(models: Networks, columns: Columns, actor: bool) -> Forward | None:
    """The passes of an update on all these rows, if memory can hold them until then.

    actor: whether the update trains the actor."""
    if models.ranks.count > 1:
        return None

    def attempt() -> Forward | None:
        parts = models.passes.to_keep(columns)
        if parts is None:
            return None
        # One network's passes are much to hold.
        both = actor and (len(parts) == 1 or models.critic is None or models.shared)
        return [(p, models.forward(take(columns, p), actor=both, critic=True)) for p in parts]

    with torch.enable_grad(), lean_gradients(models):
        return models.passes.retry(attempt)


def serves(forward: Forward | None, names: tuple[str, ...]) -> bool:
    """Whether these passes were made for the networks `names`."""
    return forward is not None and all(MADE[name] in forward[0][1] for name in names)


def backward(
    models: Networks,
    columns: Columns,
    forward: Forward,
    names: tuple[str, ...],
    loss_of: Callable[[Tensor, Columns, Mapping[str, Tensor]], Tensor],
) -> None:
    """Leave the gradient of a mini-batch in the weights of the networks `names`, on all ranks.

    forward: the rows of each pass over `columns`, made already or not. loss_of: the loss () as a
    function of a pass's rows (R,), their columns and these networks' outputs.
    """
    for network in models.networks().values():
        network.zero_grad(set_to_none=True)
    trained = {name: name in names for name in MADE}
    alone = models.ranks.count == 1
    for part, scored in forward if alone else models.ranks.share(forward):
        micro = take(columns, part)
        if not scored:
            with lean_gradients(models):
                scored = models.forward(micro, **trained)
        # A pass may cover all networks: keep what these ones made.
        of = {n: "critic" if n == MADE["critic"] else "actor" for n in scored}
        loss = loss_of(part, micro, {n: x for n, x in scored.items() if of[n] in names})
        if loss.requires_grad:
            loss.backward()
    if not alone and models.sharded and models.ranks.idle(len(forward)):
        _idle_pass(models, take(columns, forward[0][0]), trained)
    for network in models.networks().values():
        for weight in network.parameters():
            if weight.grad is not None and weight.grad.is_sparse:
                weight.grad = weight.grad.to_dense()
    if not alone:
        models.ranks.sum_gradients(models.networks().values())


def _idle_pass(models: Networks, micro: Columns, trained: Mapping[str, bool]) -> None:
    """A pass without a gradient, on a rank with fewer passes than others: with weights that are
    spread over ranks, passes are collectives."""
    outputs = models.forward(micro, **trained)
    torch.stack([x.sum() for x in outputs.values() if x.requires_grad]).sum().mul(0).backward()


@contextmanager
def lean_gradients(models: Networks) -> Iterator[None]:
    """Passes made within leave nothing as large as the vocabulary each: an embedding keeps
    the gradient of the rows that they read, the head's they add in place. Not of weights that are
    spread over ranks: those gradients leave at once."""
    if models.sharded:
        yield
        return
    trunks = [models.policy.model, *([models.critic.trunk] if models.critic else [])]
    inputs = [_embeddings(trunk) for trunk in trunks if trunk is not None]
    tables = [x for x in inputs if type(x) is nn.Embedding]
    with ExitStack() as sparse:
        for table in tables:
            sparse.enter_context(sparse_gradient(table))
        models.policy.accumulate = True
        try:
            yield
        finally:
            models.policy.accumulate = False


def _embeddings(trunk: Any) -> Any:
    """The trunk's table of embeddings; None if it names none, as a decoder's wrapper may."""
    try:
        return trunk.get_input_embeddings()
    except NotImplementedError:
        return None
