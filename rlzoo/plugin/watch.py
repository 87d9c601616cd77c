"""Watches plugins as they load: reports which one takes long, and distinguishes a plugin's own
KeyboardInterrupt from the user's Ctrl-C."""

import signal
import sys
import threading
import time
from dataclasses import dataclass, field

PATIENCE = 10.0  # seconds for a plugin before it is named


@dataclass
class Watch:
    """While open, `at(origin)` records which plugin is loading; `interrupted` is whether the
    user pressed Ctrl-C meanwhile."""

    patience: float = PATIENCE
    interrupted: bool = False
    _at: tuple[str, float] = ("", 0.0)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: int = field(default_factory=threading.get_ident)

    def __enter__(self) -> "Watch":
        threading.Thread(target=self._look, daemon=True).start()
        main = threading.current_thread() is threading.main_thread()
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def at(self, origin: str) -> None:
        self._at = (origin, time.monotonic())

    def _look(self) -> None:
        named = None
        while not self._done.wait(self.patience / 10):
            origin, since = at = self._at
            if origin and at != named and time.monotonic() - since >= self.patience:
                print(
                    f"rlzoo: plugin {origin} is still loading after {self.patience:g} "
                    f"s{self._where()}; press Ctrl-C to stop waiting",
                    file=sys.stderr,
                    flush=True,
                )
                named = at

    def _where(self) -> str:
        """Which module is being imported: a large library may take the time, not the plugin."""
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        return f" (importing {frame.f_globals.get('__name__', '?')})" if frame else ""

    def _interrupt(self, *_: object) -> None:
        self.interrupted = True
        raise KeyboardInterrupt
