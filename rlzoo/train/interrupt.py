"""Ctrl-C: the first asks to stop where a checkpoint can be written, the second stops at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SAID = b"\nstopping after this step, with a checkpoint; Ctrl-C again stops at once\n"


class Asked:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.now = False

    def hear(self, number: int, frame: Any) -> None:
        self.now = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, SAID)  # not print: the signal may have come in the middle of one


@contextmanager
def asked_to_stop() -> Iterator[Asked]:
    """Within, Ctrl-C sets `now`; as ever where this is no main thread, or Ctrl-C is somebody
    else's to handle."""
    asked = Asked()
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, asked.hear)
    try:
        yield asked
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
