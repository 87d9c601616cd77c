"""Passes of an update whose gradients leave nothing as large as the vocabulary for each pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn


class Networks(Protocol):
    """A policy and perhaps a critic: `model` and `trunk` are what their passes go through."""

    policy: Any
    critic: Any

    @property
    def sharded(self) -> bool: ...


@contextmanager
def lean_gradients(models: Networks) -> Iterator[None]:
    """Passes made within leave nothing as large as the vocabulary each: of an embedding they leave
    the gradient of the rows that they read, the head's they add in place. Not of weights that are
    spread over ranks: those gradients leave at once."""
    if models.sharded:
        yield
        return
    trunks = [models.policy.model, *([models.critic.trunk] if models.critic else [])]
    inputs = [_embeddings(trunk) for trunk in trunks if trunk is not None]
    tables = [x for x in inputs if type(x) is nn.Embedding]
    # By a number, torch counts the rows that are left: a device would be waited for.
    padding = {
        table: table.padding_idx
        for table in tables
        if table.padding_idx is not None and table.weight.device.type != "cpu"
    }
    hooks = [t.register_forward_hook(partial(_no_padding, n)) for t, n in padding.items()]
    for table in padding:
        table.padding_idx = None
    for table in tables:
        table.sparse = True
    models.policy.accumulate = True
    try:
        yield
    finally:
        models.policy.accumulate = False
        for table in tables:
            table.sparse = False
        for (table, index), hook in zip(padding.items(), hooks, strict=True):
            table.padding_idx = index
            hook.remove()


def _no_padding(padding: int, table: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
    """Leave the token `padding` no gradient, as `nn.Embedding` does with `padding_idx`."""
    if out.requires_grad:
        out.register_hook(lambda g: g.masked_fill((given[0] == padding)[..., None], 0))


def _embeddings(trunk: Any) -> Any:
    """The trunk's table of embeddings; None where it names none, as a decoder's wrapper may."""
    try:
        return trunk.get_input_embeddings()
    except NotImplementedError:
        return None
