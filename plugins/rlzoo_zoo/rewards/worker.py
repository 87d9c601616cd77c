"""Processes that judge responses: what may take too long, or too much memory, does so there."""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rlzoo import RlzooError

LIMIT = signal.SIGPROF  # what ends a worker whose seconds of CPU for a response are spent
# How a worker ends by a response: at that limit; by an exception, as for memory; in a library's C.
BY_RESPONSE = (-LIMIT, 1, -signal.SIGSEGV, -signal.SIGABRT)


class Worker:
    """The process of `module`, which works with a library: started at the first job, and again
    when it died.

    Not signals or threads in this one: they work only in the main thread, and neither stops a
    multiplication of huge integers or a search by `re`.
    """

    def __init__(self, module: str, library: str):
        self.module, self.library = module, library
        self.lock = threading.Lock()
        self.process: subprocess.Popen | None = None
        self.owner = 0
        atexit.register(self.stop)

    def ask(self, job: dict[str, Any]) -> bool:
        """Whether the response is right; one that takes too long, or too much memory, is not.

        A worker killed from outside is started again, once, for the same response.
        Raises RlzooError where that one is killed, too; ValueError where the job is at fault.
        """
        with self.lock:
            try:
                reply = self.reply(json.dumps(job))
            except BaseException:  # Ctrl-C, say: what this job is answered is not for the next
                self.stop()
                raise
        found = json.loads(reply)
        if "error" in found:
            raise ValueError(found["error"])
        return found["right"]

    def reply(self, job: str) -> str:
        status = 0
        for _ in range(2):
            if self.process is None or self.owner != os.getpid():  # a fork shares no worker
                self.start()
            if (reply := self.exchange(job)).endswith("\n"):
                return reply
            if (status := self.ended()) in BY_RESPONSE:
                return '{"right": false}'
        ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise RlzooError(
            f"{self.library}: its process ended twice on the same response ({ended}); the machine "
            "has too little memory, or another process killed it"
        )

    def start(self) -> None:
        # -P: the current folder's modules must not be imported.
        module = self.module if "." in self.module else f"rlzoo_zoo.rewards.{self.module}"
        command = [sys.executable, "-P", "-m", module]
        with signals_blocked():
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        self.owner = os.getpid()
        if self.process.stdout.readline() != "ready\n":  # type: ignore[union-attr]
            self.stop()
            raise RlzooError(
                f"{self.library} does not start; to see why, run python -c 'import {self.library}'"
            )

    def exchange(self, job: str) -> str:
        """The reply, a line; less where the process ended."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(job + "\n")
            self.process.stdin.flush()
        return self.process.stdout.readline()

    def ended(self) -> int:
        """The exit status of a process that wrote its last, -N of signal N."""
        assert self.process is not None
        self.process.communicate()
        status, self.process = self.process.returncode, None
        return status

    def stop(self) -> None:
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            self.process.communicate()
        self.process = None


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """A process that starts within receives no signal but those that no process can block, and
    `LIMIT`: a terminal, a shell and a scheduler signal the whole group of a run, and the run
    decides what happens. Signals that arrive meanwhile are received at the end."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {LIMIT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
