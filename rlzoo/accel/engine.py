"""The forward and backward passes of an update, shared among ranks and computed ahead where memory
allows; no pass keeps a tensor as large as the vocabulary.

`rlzoo.step.update` defines the loss. Nothing here depends on losses, epochs or aggregations.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlzoo.accel.hf_internals import sparse_gradients
from rlzoo.accel.memory import make_room
from rlzoo.accel.passes import Passes
from rlzoo.accel.ranks import Ranks
from rlzoo.mdp.batch import take
from rlzoo.plugin.columns import Columns

# The rows (R,) of each pass, and what `scored` gave for them, with gradient; empty where the pass
# has not been made.
Forward = list[tuple[Tensor, dict[str, Tensor]]]

# The output of a network's pass.
MADE = {"actor": "log_probs", "critic": "prediction"}


class Networks(Protocol):
    """A policy and perhaps a critic: their passes go through `model` and `trunk`.

    tables: embeddings whose gradient a pass leaves sparse, for the rows that it reads, so that
    passes leave nothing as large as the vocabulary each; the head's they add in place. None of
    weights that are spread over ranks: those gradients leave at once.
    """

    policy: Any
    critic: Any
    passes: Passes
    ranks: Ranks
    networks: dict[str, nn.Module]
    tables: list[nn.Embedding]
    shared: bool
    sharded: bool
    stats: tuple[str, ...]
    entropy_grad: bool


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
        alone = len(parts) > 1 and models.critic is not None and not models.shared
        names = tuple(n for n in models.networks if n == "critic" or (actor and not alone))
        return [(part, scored(models, take(columns, part), names)) for part in parts]

    with torch.enable_grad(), sparse_gradients(models.tables):
        return models.passes.retry(attempt)


def scored(models: Networks, columns: Columns, names: tuple[str, ...]) -> dict[str, Tensor]:
    """The differentiable outputs of an update of the networks `names`: the policy's `log_probs` and
    `models.stats`, the critic's `prediction`."""
    out: dict[str, Tensor] = {}
    both = models.shared and len(names) > 1
    if "actor" in names:
        out = models.policy.log_prob_stats(
            columns,
            want=(*models.stats, "values") if both else models.stats,
            entropy_grad=models.entropy_grad,
            accumulate=not models.sharded,  # see `tables`
        )
    if "critic" in names:
        out["prediction"] = out.pop("values") if both else models.critic.predict(columns)
    return out


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
    for network in models.networks.values():
        network.zero_grad(set_to_none=True)
    alone = models.ranks.count == 1
    for part, made in forward if alone else models.ranks.share(forward):
        micro = take(columns, part)
        if not made:
            with sparse_gradients(models.tables):
                made = scored(models, micro, names)
        # A pass may cover all networks: keep what these ones made.
        of = {n: "critic" if n == MADE["critic"] else "actor" for n in made}
        loss = loss_of(part, micro, {n: x for n, x in made.items() if of[n] in names})
        if loss.requires_grad:
            loss.backward()
    if not alone and models.sharded and models.ranks.idle(len(forward)):
        _idle_pass(models, take(columns, forward[0][0]), names)
    for network in models.networks.values():
        for weight in network.parameters():
            if weight.grad is not None and weight.grad.is_sparse:
                make_room(weight)  # the passes' activations are free by now
                weight.grad = weight.grad.to_dense()
    if not alone:
        models.ranks.sum_gradients(models.networks.values())


def _idle_pass(models: Networks, micro: Columns, names: tuple[str, ...]) -> None:
    """A pass without a gradient, on a rank with fewer passes than others: with weights that are
    spread over ranks, passes are collectives."""
    outputs = scored(models, micro, names)
    torch.stack([x.sum() for x in outputs.values() if x.requires_grad]).sum().mul(0).backward()


def embeddings(trunk: Any) -> list[nn.Embedding]:
    """The trunk's table of embeddings; none if it names none, as a decoder's wrapper may."""
    try:
        table = trunk.get_input_embeddings()
    except NotImplementedError:
        return []
    return [table] if type(table) is nn.Embedding else []
