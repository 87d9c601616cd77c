"""Weights in shards over ranks: FSDP2, torch's `fully_shard`, a decoder layer at a time.

Each rank keeps a slice of every weight, of its gradient and of the optimizer's state. A pass
gathers a layer's weights just before it needs them and drops them after, so passes are collective:
all ranks make the same number. Generation is not collective: while it runs, the policy is `whole`
on each rank.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def shard(network: Any) -> None:
    """Shard a transformers model or a layer in place, without changing its forward pass.

    Gradients are summed over ranks, not averaged. By torch itself: Accelerate's FSDP plugin is
    for accelerators only, and needs an optimizer with each network.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from transformers.modeling_layers import GradientCheckpointingLayer

    device = next(network.parameters()).device.type
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            fully_shard(module, mesh=mesh)
    fully_shard(network, mesh=mesh, reshard_after_forward=True)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def is_shard(x: Any) -> bool:
    """Whether a weight, or a tensor computed from it, is spread over ranks."""
    return hasattr(x, "full_tensor")  # DTensor's; its module takes a second to import


def whole_tensor(x: Tensor) -> Tensor:
    """The whole x on every rank; a collective operation if x is spread."""
    return x.full_tensor() if is_shard(x) else x  # type: ignore[attr-defined]


def whole_tensors(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Gather spread tensors on the CPU, one at a time; this rank may `keep` all or none of them.
    Tied weights, which are one object, stay one."""
    seen: dict[int, Tensor] = {}
    out = {}
    for name, x in tensors.items():
        if is_shard(x) and id(x) not in seen:
            full = whole_tensor(x.detach())
            seen[id(x)] = full.cpu() if keep else full.new_zeros(0)
        if keep:
            out[name] = seen.get(id(x), x)
    return out


def spread_like(x: Tensor, like: Any) -> Tensor:
    """A whole tensor, cut as `own` is if that is spread."""
    if not is_shard(like) or x.shape != like.shape:
        return x
    from torch.distributed.tensor import distribute_tensor

    # Every rank has read it: nothing need be sent.
    x = x.to(like.device)
    return distribute_tensor(x, like.device_mesh, like.placements, src_data_rank=None)


@contextmanager
def whole(modules: Iterable[nn.Module]) -> Iterator[None]:
    """In this context, these modules have whole weights, so passes are not collectives."""
    spread: list[Any] = [m for m in modules if hasattr(m, "set_reshard_after_forward")]
    for module in spread:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in spread:
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()
