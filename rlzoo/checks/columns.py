"""Checks of column plugins, beyond those of every function: what others are shown of them."""

import torch
from torch import Tensor

from rlzoo.checks import made_up
from rlzoo.checks.subject import NotApplicable, Subject
from rlzoo.plugin.call import has_shape


def example_is_like_the_column(s: Subject) -> None:
    """Its example is of the declared shape, finite, and the generator's alone."""
    if s.component.example is None:
        raise NotApplicable("has no example; the kit makes up noise of its shape")
    mask = s.batch()["response_mask"]
    rows, steps = mask.shape
    made, again = (
        made_up.exotic(s.component, torch.Generator().manual_seed(0), mask) for _ in range(2)
    )
    if s.component.shape == "list":
        assert len(made) == rows, f"its example has {len(made)} entries, not B = {rows}"
        return
    assert isinstance(made, Tensor), f"its example is {type(made).__name__}, not a tensor"
    right = has_shape(made, s.component.shape, rows, steps)
    assert right, f"its example is {tuple(made.shape)}, declared {s.component.shape}"
    assert torch.equal(made, again), "its example differs from call to call: use the generator"
    assert bool(torch.isfinite(made).all()), "its example is not finite"


ALL = (example_is_like_the_column,)
