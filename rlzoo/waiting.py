"""Pauses that a signal ends."""

import signal
import threading
import time

from rlzoo.errors import Stopped

TICK = 0.1  # seconds between looks at `signals`

signals: list[int] = []  # requests to stop the run, where a pause may end


class StoppedWaiting(Stopped):
    """A signal ended a component's wait: resuming takes the step again."""


def pause(seconds: float) -> None:
    """Sleep. In the main thread, raises StoppedWaiting once a signal stops the run."""
    end = time.monotonic() + seconds
    main = threading.current_thread() is threading.main_thread()  # a pool hangs if a thread ends
    while True:
        if signals and main:
            raise StoppedWaiting(f"stopped by {signal.Signals(signals[0]).name}", signals[0])
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, TICK))
