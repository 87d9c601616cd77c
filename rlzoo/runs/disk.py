"""Files on disk: replaced whole or not at all, and synced."""

import json
import os
from pathlib import Path
from typing import Any

from rlzoo.errors import disk_is_full as disk_is_full


def write_json(path: Path, data: Any) -> None:
    """As JSON, replacing `path` whole."""
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` whole: a reader, or a crash, sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    write_synced(aside, data)
    aside.replace(path)
    sync(path.parent)


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
