"""CUDA graphs: a step that is always the same is recorded once, and launched as one.

No line of this file has run on a GPU yet. What can be held without one is held by
`tests/invariants/test_static_cache.py`: the step asks the host for nothing and changes no shape.
"""

from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], None]


def captured(step: Step, device: torch.device) -> Step:
    """`step` as a graph on a GPU, elsewhere as it is. It reads and writes tensors that stay."""
    # Autocast keeps the casts it made: a graph would read what is gone by its next replay.
    if device.type != "cuda" or torch.is_autocast_enabled("cuda"):
        return step
    return Graph(step)


class Graph:
    """Runs its step the first time, which makes libraries ready; the second time records it."""

    def __init__(self, step: Step):
        self.step = step
        self.stream = torch.cuda.Stream()
        self.warm = False
        self.graph: Any = None

    def __call__(self) -> None:
        if not self.warm:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step()
            torch.cuda.current_stream().wait_stream(self.stream)
            self.warm = True
            return
        if self.graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):  # recorded, not run
                self.step()
            self.graph = graph
        self.graph.replay()
