"""How many tokens a run has generated: every one that a policy draws is counted, once."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from rlzoo.ops import on_host


class Meter:
    """`tokens`: generated so far, those of a run's evaluations apart."""

    def __init__(self) -> None:
        self.tokens = 0

    def count(self, response_mask: Tensor) -> None:
        """The tokens that the policy chose: response_mask (B, T)."""
        self.tokens += int(on_host(response_mask).sum())

    @contextmanager
    def apart(self) -> Iterator["Meter"]:
        """Within, tokens go to a meter of their own, which is filled when it ends."""
        other, before = Meter(), self.tokens
        try:
            yield other
        finally:
            other.tokens, self.tokens = self.tokens - before, before
