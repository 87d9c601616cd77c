"""What a verb shows: its blocks, ready for every format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo_lab.view.blocks import Block, Curve


@dataclass(frozen=True)
class Shown:
    """The blocks that a verb prints. records: the same results as flat records, for a data frame or
    CSV. curves: makes the curves, which a terminal does not show."""

    blocks: Sequence[Block]
    records: Sequence[Mapping[str, Any]] = ()
    curves: Callable[[], Sequence[Curve]] = tuple

    def __call__(self, console: Any) -> list[Any]:
        """For `Result.view`."""
        from rlzoo_lab.view.terminal import rendered  # here: rich

        return rendered(self.blocks, console)
