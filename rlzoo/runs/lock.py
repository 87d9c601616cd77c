"""One writer at a time: a lock that ends with its process, also by SIGKILL."""

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlzoo.errors import RunError
from rlzoo.runs.disk import no_link

BUSY = (errno.EAGAIN, errno.EACCES)  # another process holds it; else: no locks on this file system


@contextmanager
def locked(place: Path, file: Path | None = None, patience: float = 0.0) -> Iterator[None]:
    """Hold the folder `place` for writing; raises a RunError that names another holder.

    file: which stands for the lock, `place/.lock` if it is not given; made, and removed again.
    patience: seconds to wait for a holder that is about to go.
    """
    file = file or place / ".lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{file.parent}: cannot be created: {error.strerror}") from None
    end, who = time.monotonic() + patience, ""
    while (handle := _take(file)) is None:
        if time.monotonic() >= end:
            with suppress(FileNotFoundError):  # or it has gone this moment
                holder = " ".join(file.read_text(encoding="utf-8", errors="replace").split())
                who = f" ({holder})" if holder else ""
            raise RunError(f"{place}: another process is using it{who}")
        time.sleep(0.05)
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held: a process that opened it before looks again
            file.unlink()
        os.close(handle)


def is_locked(place: Path) -> bool:
    """Whether a process holds the folder's lock, which stays unchanged."""
    with suppress(OSError), open(place / ".lock", "rb", opener=no_link) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # held; or this file system cannot report it
            return True
    return False  # none there, or what a killed process left


def _take(file: Path) -> int | None:
    """The open file where it could be locked."""
    with suppress(OSError):
        status = os.lstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise RunError(f"{file}: is a link or not a file, so it is not a lock; remove it")
    while True:
        try:
            handle = no_link(file, os.O_RDWR | os.O_CREAT)
        except OSError as error:  # read-only, above all
            raise RunError(f"{file.parent}: cannot be written to: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in BUSY:
                os.close(handle)
                return None
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), file.stat()):
                with suppress(OSError):  # a full disk: it is locked all the same
                    os.truncate(handle, 0)
                    who = f"process {os.getpid()} on {socket.gethostname()}"
                    os.write(handle, f"{who} since {time.strftime('%F %T')}".encode())
                return handle
        os.close(handle)  # its last holder has removed it
