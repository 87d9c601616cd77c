"""Ctrl-C: the first asks to stop where a checkpoint can be written, the second stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Asked:
    """Whether somebody has asked to stop. say: is called when somebody does, in the handler."""

    def __init__(self, say: Callable[[], None]) -> None:
        self.now, self.say = False, say

    def hear(self, number: int, frame: Any) -> None:
        self.now = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.say()


@contextmanager
def asked_to_stop(say: Callable[[], None]) -> Iterator[Asked]:
    """Within, Ctrl-C sets `now`; as ever where this is no main thread, or Ctrl-C is somebody
    else's to handle."""
    asked = Asked(say)
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, asked.hear)
    try:
        yield asked
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
