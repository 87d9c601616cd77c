"""Checks of column plugins, in addition to those of every function: their examples."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.plugin.call import has_shape
from rlzoo.plugin.columns import RESOURCES
from rlzoo_lab.kit.checks import made_up
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject


def example_is_like_the_column(s: Subject) -> None:
    """Its example has the declared shape, is finite, and depends only on the generator."""
    if s.component.example is None:
        raise NotApplicable("has no example; the checks use noise of its shape")
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
    assert right, f"its example has shape {tuple(made.shape)}, but {s.component.shape} is declared"
    assert torch.equal(made, again), "its example differs between calls; use the generator"
    assert bool(torch.isfinite(made).all()), "its example is not finite"


def reference_is_asked_by_its_methods(s: Subject) -> None:
    """It calls the reference's methods (`log_probs`, `logits`, ...), never `reference.model`, which
    with LoRA is the policy's own network with active adapters."""
    if "reference" not in s.needs:
        raise NotApplicable("needs no reference")
    others = [name for name in s.needs if name in RESOURCES and name != "reference"]
    if others:
        raise NotApplicable(f"needs {' and '.join(others)}, which only a run has")
    inputs = {**s.batch(), "reference": _Reference()}
    try:
        s.component.function(*(inputs[n] for n in s.needs), **s.component.check_options({}))
    except RlzooError as error:
        raise NotApplicable(f"requires options to be set: {error}") from None


class _Reference:
    """A synthetic frozen policy, uniform over a hundred tokens."""

    temperature = 1.0
    device = torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"reads reference.{name}; call reference.log_probs(columns) or logits")

    def precision(self) -> Any:
        return nullcontext()

    def logits(self, columns: Mapping[str, Any]) -> Tensor:
        rows, steps = columns["response_ids"].shape
        return torch.zeros(rows, steps + 1, 100)

    def log_probs(self, columns: Mapping[str, Any]) -> Tensor:
        return torch.full(columns["response_ids"].shape, -math.log(100.0))


ALL = (example_is_like_the_column, reference_is_asked_by_its_methods)
