"""Writes files atomically and syncs them."""

import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError, RunError, first_line, in_short

LARGEST = 1e100  # a number of a file: sums and squares of smaller ones are finite
DEVICES = (Path("/dev"), Path("/dev/fd"))  # a file there is written as it is: /dev/stdout


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON that UTF-8 can hold: U+FFFD in place of half a surrogate pair."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, (json_text(data, indent=1) + "\n").encode())


def read_json(path: Path, parse: Callable[[str], Any] = json.loads) -> Any:
    """The content of a JSON file; raises OSError, or ValueError if it is damaged."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def read_mapping(
    path: Path, parse: Callable[[str], Any] = json.loads, kinds: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """The mapping in a file that `parse` reads; raises RunError if it is damaged.

    kinds: the type of some of its values, where they are there and not null; float: any number."""
    try:
        mapping = read_json(path, parse)
        if not isinstance(mapping, dict):
            raise ValueError("it does not contain a mapping")
        for key, kind in (kinds or {}).items():
            value = mapping.get(key)
            fits = is_number(value) if kind is float else isinstance(value, kind)
            if value is not None and not fits:
                raise ValueError(f"its {key!r} must not be {in_short(value)}")
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}") from None
    return mapping


def is_number(value: Any) -> bool:
    """Whether a value of a file is a number with which sums and squares do not overflow."""
    if type(value) not in (int, float):
        return False
    return abs(value) <= LARGEST or not (type(value) is int or math.isfinite(value))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` whole: a reader, or a crash, sees the old file or the new one. A device or a
    pipe (/dev/null) is written to, and never replaced."""
    odd = path.exists() and not path.is_file() and not path.is_dir() and not path.is_symlink()
    if odd or (path.parent in DEVICES and path.exists()):  # /dev/stdout is a link
        path.write_bytes(data)
        return
    aside = path.with_name(f".{path.name}.partial")
    aside.unlink(missing_ok=True)
    try:
        with _named(path):
            write_synced(aside, data, "xb")
            if path.is_file():
                shutil.copymode(path, aside)  # a private file stays private
            aside.replace(path)
    except BaseException:  # a full disk needs the space
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_synced(path: Path, data: bytes, mode: str = "wb") -> None:
    """Write a file that is on disk when this returns; a link is not followed."""
    with _named(path), open(path, mode, opener=no_link) as file:
        file.write(data)
    sync(path)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """In this context, an OSError of a write or of fsync, which has no file name, gets `path`."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def no_link(path: str | Path, flags: int) -> int:
    """An `opener` of `open` that raises OSError if the last part of a path is a link. It does not
    wait for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def refuse_links(place: Path, error: type[RlzooError] = RunError) -> None:
    """Raise `error` where writing below a folder could change something outside: at a link that
    leads out of it, or directly in it to nothing, at a file with a second name, and where
    `refuse_devices` does."""
    root = os.path.realpath(place)
    for path, status in _below(root):
        link = stat.S_ISLNK(status.st_mode)
        if link and not Path(os.path.realpath(path)).is_relative_to(root):
            raise error(f"{path}: is a link to {os.readlink(path)}, outside the run's folder; "
                        "replace the link with its target, or remove it")  # fmt: skip
        if link and os.path.dirname(path) == root and not os.path.exists(path):
            raise error(f"{path}: is a broken link; remove it")  # a run makes no folder there
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise error(f"{path}: has another hard link; replace it with a copy")
    refuse_devices(place, error)


def refuse_devices(place: Path, error: type[RlzooError] = RunError) -> None:
    """Raise `error` where something below a folder is, or leads to, a pipe or a device: reading it
    may never end."""
    for path, status in _below(place):
        with suppress(FileNotFoundError):  # a link to nothing
            kind = os.stat(path).st_mode if stat.S_ISLNK(status.st_mode) else status.st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                raise error(f"{path}: is a pipe or a device, not a file; remove it")


def _below(place: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a folder and below, links not followed, with its status."""
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError):  # another process has removed it
                yield path, os.lstat(path)


def sync(path: Path) -> None:
    """Wait until a file's or a folder's writes are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with _named(path):
            os.fsync(handle)
    finally:
        os.close(handle)
