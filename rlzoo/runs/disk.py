import errno
import json
import os
from pathlib import Path
from typing import Any


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, data: Any) -> None:
    """As JSON, replacing `path` whole."""
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` whole: a reader, or a crash, sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    _write(aside, data)
    aside.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_is_full(error: BaseException) -> bool:
    """Also as safetensors says it."""
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in numbers or "No space left on device" in str(error)
