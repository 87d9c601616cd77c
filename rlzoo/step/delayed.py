"""Sampling with a policy from some updates ago, as if generation and training ran in parallel."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

FILE = "delayed.safetensors"  # of a checkpoint


class Delayed:
    """A model's trained weights before each of its last `updates` updates, the oldest first.

    Before there were as many, the oldest are those that it began with.
    """

    def __init__(self, model: nn.Module, updates: int):
        self.weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.past: deque[dict[str, Tensor]] = deque(maxlen=updates)

    def remember(self) -> None:
        """An update follows."""
        self.past.append(self._copy())

    @contextmanager
    def within(self) -> Iterator[None]:
        """In this context, the model has its older weights."""
        if not self.past:
            yield
            return
        now = self._copy()
        self._put(self.past[0])
        try:
            yield
        finally:
            self._put(now)

    def tensors(self) -> dict[str, Tensor]:
        """The complete state, to be saved."""
        return {f"{i}.{n}": x for i, then in enumerate(self.past) for n, x in then.items()}

    def load(self, checkpoint: Path) -> None:
        """Load its part of a checkpoint; raises OSError where that is missing."""
        tensors = load_file(checkpoint / FILE)
        self.past.clear()
        for i in range(len(tensors) // len(self.weights)):
            then = {n: tensors[f"{i}.{n}"].to(p) for n, p in self.weights.items()}
            if any(x.shape != self.weights[n].shape for n, x in then.items()):
                raise ValueError(f"{FILE} belongs to another model")
            self.past.append(then)

    def _copy(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def _put(self, then: Mapping[str, Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(then[name])
