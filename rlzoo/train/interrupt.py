"""Ctrl-C and other signals: the first requests a stop with a checkpoint, a repeated one stops at
once."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlzoo import waiting
from rlzoo.errors import Stopped

# Signals that request a stop, and the handler of a process that has set none: a terminal's Ctrl-C;
# what Slurm, Kubernetes and `kill` send; a terminal that was closed; the end of a CPU limit.
DEFAULT: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGXCPU: signal.SIG_DFL,
}
TOGETHER = 0.2  # seconds: `timeout` and torchrun signal a process and its group, which is once


@dataclass
class Asked:
    """`number`: the first such signal's, 0 before."""

    number: int = 0


def _once(number: int, then: Any, say: Callable[[], None] = lambda: None) -> None:
    """Signals that arrive together count once; the next of its kind meets the handler `then`."""
    signal.signal(number, signal.SIG_IGN)
    say()
    time.sleep(TOGETHER)
    if number != signal.SIGXCPU:  # which comes again with each second, up to the hard limit
        signal.signal(number, then)


def stop_here(number: int, frame: object) -> None:
    """A handler: raises Stopped, as Ctrl-C raises KeyboardInterrupt, wherever the process is."""
    _once(number, stop_here)
    raise Stopped(f"stopped by {signal.Signals(number).name}", number)


@contextmanager
def stopped_in_words() -> Iterator[None]:
    """In this context, a signal that would end the process silently raises Stopped. Only
    `asked_to_stop` waits for a step's end; handlers of others stay, as there."""
    ours = [n for n, former in _found().items() if former is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop_here)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _found() -> dict[int, Any]:
    """The default handlers still in place; empty off the main thread, where none can be set."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in DEFAULT}
    return {n: former for n, former in handlers.items() if former in (DEFAULT[n], stop_here)}


@contextmanager
def asked_to_stop(say: Callable[[], None], in_waits: bool = False) -> Iterator[Asked]:
    """In this context, the first of these signals sets `number`; no effect outside the main
    thread, or where a signal is ignored (`nohup`) or has another handler. Handlers are restored at
    the end. `say` is called at each, in the handler. in_waits: a component that waits raises
    StoppedWaiting."""
    former, stop = _found(), Asked()

    def hear(number: int, frame: object) -> None:
        stop.number = stop.number or number
        if in_waits:
            waiting.signals.append(number)
        _once(number, former[number], say)

    for number in former:
        signal.signal(number, hear)
    try:
        yield stop
    finally:
        waiting.signals.clear()
        for number, handler in former.items():
            signal.signal(number, handler)
