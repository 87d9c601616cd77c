"""A terminal that shows texts of data and models without executing their control characters."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment


class SafeConsole(Console):
    """rich's, with one character in the place of each control character of a text (ESC, bells,
    marks that turn the direction of writing): none of a model's reaches the terminal.

    goes_on: for progress, so that a full disk or a closed terminal does not end the work.
    """

    goes_on = False

    def on_broken_pipe(self) -> None:
        """The reader has gone, as with `| head`: the work continues; rich's own ends it."""
        self.quiet = True
        with suppress(OSError):  # not a real file
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:
            if not self.goes_on:
                raise
            self.on_broken_pipe()

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*arguments, **options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment(
                    "".join(
                        c if c.isprintable() or c == "\n"
                        else chr(0x2400 + ord(c)) if c < " "  # of the same width: U+241B for ESC
                        else "\ufffd"
                        for c in text
                    ),
                    segment.style,
                )  # fmt: skip


@contextmanager
def doing(what: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Until the block ends, a line with what is computed and for how long, on stderr and only in a
    terminal. The value sets what comes next."""
    console = SafeConsole(stderr=True, quiet=quiet)
    console.goes_on = True
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as line:
        task = line.add_task(what, total=None)
        yield lambda what: line.update(task, description=what)
