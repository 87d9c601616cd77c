"""What a piece of work asks of a device, counted on any: operations, each a launch or more, and
what makes the host wait."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlzoo.accel.graphs import waits

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
