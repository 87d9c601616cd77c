"""A gradient compared with finite differences, with what a function detaches held still.

What leaves the graph is a constant for autograd on purpose: the weights of a loss, a target, a
branch. It is recorded in a first call and given again in the next ones.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlzoo.plugin.call import zero_off_mask
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject

STEP = 1e-6
LEAVES = {"detach", "item", "tolist", "numpy", "__bool__", "__float__", "__int__"}


class Held(TorchFunctionMode):
    """Records what is detached, or computed without a gradient; entered again, gives it again."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self.times = 0  # entered
        self.rest: Iterator[Any] = iter(())
        self.inside = 0  # how deep in functions with a backward of their own

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        leaves = function.__name__ in LEAVES or function == Tensor.data.__get__  # type: ignore[attr-defined]
        if not leaves and (torch.is_grad_enabled() or self.inside):
            return out
        if self.times == 1:
            self.kept.append(out.clone() if isinstance(out, Tensor) else out)
            return out
        try:
            return next(self.rest)
        except StopIteration:
            raise NotApplicable("computes something else for values nearby") from None

    def __enter__(self) -> Any:
        apply = torch.autograd.Function.__dict__["apply"].__func__

        def counted(cls: Any, *args: Any, **options: Any) -> Any:
            self.inside += 1
            try:
                return apply(cls, *args, **options)
            finally:
                self.inside -= 1

        self.patch = patch.object(torch.autograd.Function, "apply", classmethod(counted))
        self.patch.start()
        self.times, self.rest = self.times + 1, iter(self.kept)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.patch.stop()


def backward_is_the_slope(s: Subject) -> None:
    """Its gradient is the slope of its value where what it detaches is held still."""
    _compare(s, Held, "is a backward of its own wrong?")


def gradient_is_the_slope(s: Subject) -> None:
    """Its gradient is the slope of its value: none flows into the target, and none is lost."""
    _compare(s, None, "does a gradient flow into the target?")


def _compare(s: Subject, hold: type[Held] | None, why: str) -> None:
    for columns in s.trials():
        mask = columns["response_mask"]
        for name, gradient in s.gradient(columns).items():
            direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0),
                                    dtype=gradient.dtype)  # fmt: skip
            if gradient.shape[:2] == mask.shape:
                direction = zero_off_mask(direction, mask)
            values, held = [], hold() if hold else nullcontext()
            for size in (0, STEP, -STEP):
                with torch.enable_grad():
                    leaf = (columns[name] + size * direction).detach().requires_grad_()
                    with held:
                        output = s.call({**columns, name: leaf})
                values.append(next(iter(output.values())).detach())
            here, above, below = values
            slope = float((above - below).sum()) / (2 * STEP)
            parts = gradient * direction
            along = float(parts.sum())
            rounding = 1e-5 * parts.abs().sum() + 1e-8 * here.abs().sum() + 1e-9
            assert abs(slope - along) <= float(rounding), (
                f"its gradient in {name} is {along:.6g} along a direction in which its value rises "
                f"by {slope:.6g}: {why}"
            )
