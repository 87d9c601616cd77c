"""Watches plugins as they load: reports which one takes long, and distinguishes a plugin's own
KeyboardInterrupt from the user's Ctrl-C."""

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PATIENCE = 10.0  # seconds for a plugin before it is named


@dataclass
class Watch:
    """Reports a plugin that loads for `patience` seconds.

    loading: the plugin's origin, set by the loader. interrupted: whether the user pressed Ctrl-C
    meanwhile.
    """

    patience: float = PATIENCE
    loading: str = ""
    interrupted: bool = False
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: int = field(default_factory=threading.get_ident)

    def _look(self) -> None:
        seen, since = "", math.inf
        while not self._done.wait(self.patience / 10):
            if self.loading != seen:
                seen, since = self.loading, time.monotonic()
            elif seen and time.monotonic() - since >= self.patience:
                print(
                    f"rlzoo: plugin {seen} is still loading after {self.patience:g} "
                    f"s{self._where()}; press Ctrl-C to stop waiting",
                    file=sys.stderr,
                    flush=True,
                )
                since = math.inf  # named once

    def _where(self) -> str:
        """Which module is being imported: a large library may take the time, not the plugin."""
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        return f" (importing {frame.f_globals.get('__name__', '?')})" if frame else ""

    def _interrupt(self, *_: object) -> None:
        self.interrupted = True
        raise KeyboardInterrupt


@contextmanager
def watching(patience: float = PATIENCE) -> Iterator[Watch]:
    """In this context, plugins load under a watch."""
    watch = Watch(patience)
    threading.Thread(target=watch._look, daemon=True).start()
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, watch._interrupt)
    try:
        yield watch
    finally:
        watch._done.set()
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
