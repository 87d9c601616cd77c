"""The contents of what a recipe names: data, model folders, modules with the user's functions.

A resumed run reports what has changed. Names that are on no disk here, such as those on a hub,
are not looked up.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlzoo.recipe.files import config_dirs

FUNCTION = re.compile(r"[\w.]+:[A-Za-z_][\w-]*")  # module:name, or a module with an environment
PLACES = {"path", "folder", "dir", "file", "init"}  # last parts of keys that may name a folder
ELSEWHERE = ("run.", "loggers.")  # where a run writes

MOST = 2**28  # bytes that are read of a file or of all files of a folder
PIECE = 2**16  # a file with more than its share is read in pieces of this size, evenly spaced
FILES = 10_000  # read in a folder; only names and sizes of others count


def contents(values: Mapping[str, Any]) -> dict[str, str]:
    """Recipe key -> the file or folder that its value names and a SHA-256 (16 digits) of what is in
    it, after a space. values: a flat recipe."""
    digests = {}
    for key, value in values.items():
        texts = value if isinstance(value, list) else [value]
        paths = [p for text in texts for p in _named(key, text)]
        if paths and not key.startswith(ELSEWHERE):
            with suppress(OSError):  # what may not be read is the component's affair
                digests[key] = f"{', '.join(map(str, paths))} {digest(paths)}"
    return digests


def _named(key: str, value: Any) -> Iterator[Path]:
    if not isinstance(value, str) or not value:
        return
    if FUNCTION.fullmatch(value):
        with suppress(ImportError, ValueError, AttributeError):
            spec = find_spec(value.partition(":")[0])
            if spec and str(spec.origin).endswith(".py"):
                yield Path(str(spec.origin))
        return
    folder_too = key.rpartition(".")[2].rpartition("_")[2] in PLACES or ".domains." in key
    for place in (Path(os.path.expanduser(value)), *(d / value for d in config_dirs())):
        if os.path.isfile(place) or (folder_too and os.path.isdir(place)):
            yield place
            return


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 (16 digits) of files and folders: relative names, sizes and bytes, of more than
    `MOST` bytes a part. Hidden files do not count."""
    hashed = hashlib.sha256()
    for path in paths:
        files = sorted(_below(path)) if path.is_dir() else [path]
        share = max(PIECE, MOST // max(1, len(files)))
        for number, file in enumerate(files):
            size = file.stat().st_size
            hashed.update(f"{os.path.relpath(file, path)} {size}\n".encode(errors="replace"))
            if number < FILES:
                for part in _parts(file, size, share):
                    hashed.update(part)
    return hashed.hexdigest()[:16]


def _below(folder: Path) -> Iterator[Path]:
    for folder_here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in files:
            path = Path(folder_here, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _parts(file: Path, size: int, most: int) -> Iterator[bytes]:
    count = -(-min(size, most) // PIECE)
    with file.open("rb") as stream:
        for i in range(count):
            if size > most:
                stream.seek((size - PIECE) * i // max(1, count - 1))
            yield stream.read(PIECE)
