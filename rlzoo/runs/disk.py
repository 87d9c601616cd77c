"""Files on disk: replaced whole or not at all, and synced."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlzoo.errors import RunError, UsageError, first_line
from rlzoo.runs.lock import locked


def write_json(path: Path, data: Any) -> None:
    """As JSON, replacing `path` whole."""
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """What a file holds; raises OSError, and ValueError where it is damaged in any way."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("brackets within brackets without end") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """The same, of a file that holds a mapping; raises RunError where it is damaged."""
    try:
        found = read_json(path)
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} cannot be read: it holds no mapping")
    return found


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` whole: a reader, or a crash, sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    write_synced(aside, data)
    aside.replace(path)
    sync(path.parent)


@contextmanager
def staged(place: Path, option: str, *, keep: bool = False) -> Iterator[Path]:
    """A folder beside `place` that takes its place, whole, when the block ends.

    One process at a time. keep: what is left of a block that did not end stays, for the next.
    Raises UsageError, which names the `option`, where `place` holds something.
    """
    place = Path(os.path.abspath(place))
    aside = place.with_name(f".{place.name}.partial")
    check_free(place, option)
    with locked(place, place.with_name(f".{place.name}.lock")):
        check_free(place, option)
        if aside.exists() and not keep:
            shutil.rmtree(aside)
        aside.mkdir(exist_ok=True)
        try:
            yield aside
        except BaseException:
            if not keep or not any(aside.iterdir()):
                shutil.rmtree(aside)
            raise
        for path in [*aside.rglob("*"), aside]:
            sync(path)
        if place.exists():
            place.rmdir()  # it is empty
        aside.rename(place)
        sync(place.parent)


def check_free(place: Path, option: str) -> None:
    """Raises UsageError where `place` is a file, or a folder with something in it."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{option}: {place} exists already and is not empty")


def write_synced(path: Path, data: bytes) -> None:
    """Write a file that is on disk when this returns."""
    path.write_bytes(data)
    sync(path)


def sync(path: Path) -> None:
    """What was written of a file or a folder is on disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
