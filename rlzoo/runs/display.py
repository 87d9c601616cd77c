"""Progress of a run."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlzoo.recipe.plan import Plan
    from rlzoo.runs.folder import RunFolder

STOPPING = "stopping after this step, with a checkpoint; repeat the signal to stop at once"


class Silent:
    """Shows nothing: for Python callers and tests. A display is a subclass."""

    def start(self, plan: "Plan", folder: "RunFolder") -> None: ...
    def phase(self, name: str) -> None:
        """A phase begins: loading, evaluating, sampling, updating."""

    def ready(self, text: str) -> None:
        """The models are loaded; their size and the number of threads."""

    def step(self, line: dict[str, float], progress: float) -> None: ...
    def evaluation(self, line: dict[str, float]) -> None: ...
    def note(self, text: str) -> None: ...
    def stopping(self) -> None:
        """Ctrl-C was pressed, perhaps in the middle of a print: nothing but the bare descriptor."""
        with suppress(OSError):  # the terminal is closed, its disk full
            os.write(2, f"\n{STOPPING}\n".encode())

    def finish(self, summary: dict[str, Any], folder: "RunFolder") -> None: ...
    def close(self) -> None: ...
