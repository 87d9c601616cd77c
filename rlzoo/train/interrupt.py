"""Ctrl-C and its kin: the first asks to stop where a checkpoint can be written, the same again
stops at once."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# What asks a run to stop, and the handler of a process that has set none: a terminal's Ctrl-C; what
# Slurm, Kubernetes and `kill` send; a terminal that was closed; the end of a CPU limit.
DEFAULT: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGXCPU: signal.SIG_DFL,
}
TOGETHER = 0.2  # seconds: `timeout` and torchrun signal a process and its group, which is once


class Stopped(KeyboardInterrupt):
    """A training that ended as a signal asked, with a checkpoint.

    status: an exit status of 128 + the signal's number, as a shell has it of one that died by it.
    """

    def __init__(self, text: str, number: int):
        super().__init__(text)
        self.status = 128 + number


class Asked:
    """Whether a signal has asked to stop, and the first one's `number`. say: is called at each, in
    the handler."""

    def __init__(self, say: Callable[[], None]) -> None:
        self.number, self.say = 0, say

    @property
    def now(self) -> bool:
        return self.number > 0

    def hear(self, number: int, frame: object) -> None:
        self.number = self.number or number
        signal.signal(number, signal.SIG_IGN)
        self.say()
        time.sleep(TOGETHER)
        if number != signal.SIGXCPU:  # which comes again with each second, up to the hard limit
            signal.signal(number, DEFAULT[number])


@contextmanager
def asked_to_stop(say: Callable[[], None]) -> Iterator[Asked]:
    """Within, each of these signals sets `now`; as ever where this is no main thread, or where it
    is ignored (`nohup`) or somebody else's to handle. Handlers are put back at the end."""
    asked = Asked(say)
    main = threading.current_thread() is threading.main_thread()
    ours = [n for n, former in DEFAULT.items() if main and signal.getsignal(n) is former]
    for number in ours:
        signal.signal(number, asked.hear)
    try:
        yield asked
    finally:
        for number in ours:
            signal.signal(number, DEFAULT[number])
