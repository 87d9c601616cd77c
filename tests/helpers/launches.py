"""What a piece of work asks of a device, counted on any: operations, each a launch or more, and
what makes the host wait."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Their result, or its shape, is a value that the host must have first; a constant is the host's.
WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "multinomial", "_coalesce"),
    *("repeat_interleave", "lift_fresh"),
}
# Views, which launch nothing.
FREE = {
    *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "squeeze"),
    *("unsqueeze", "split", "split_with_sizes", "detach", "alias", "as_strided", "unbind"),
    *("_reshape_alias", "lift_fresh"),
}


class Launches(TorchDispatchMode):
    """ops, waits: how often each operation, and of those for which the host waits, by name.

    shapes: (name, shapes of what goes in and out) of each operation, in order.
    """

    def __init__(self):
        super().__init__()
        self.ops, self.waits, self.shapes = Counter(), Counter(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.ops.update([name] * (name not in FREE))
        self.waits.update([name] * waits(name, args, out))
        tensors = [x for x in tree_leaves((args, out)) if isinstance(x, torch.Tensor)]
        self.shapes.append((name, *(tuple(x.shape) for x in tensors)))
        return out


def waits(name, args, out):
    """Whether the host waits for an operation, or a device for the host."""
    if name in WAITING:
        return True
    tensors = [x for x in tree_leaves((args, out)) if isinstance(x, torch.Tensor)]
    if name in ("index", "index_put", "index_put_"):  # as many as there are True
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    return name in ("_to_copy", "copy_") and len({x.device.type for x in tensors}) > 1
