"""The contents of what a recipe names: data, model folders, modules with the user's functions.

A resumed run reports what has changed. Names that are on no disk here, such as those on a hub,
are not looked up.
"""

import ast
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
        if not paths or key.startswith(ELSEWHERE):
            continue
        with suppress(OSError):  # what may not be read is the component's affair
            more = " with its imports" if any(len(sources(p)) > 1 for p in paths) else ""
            digests[key] = f"{', '.join(map(str, paths))}{more} {digest(paths)}"
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
    `MOST` bytes a part. Hidden files do not count; a Python file does with those that it imports
    from its own folder."""
    hashed = hashlib.sha256()
    for path in paths:
        files = sorted(_below(path)) if path.is_dir() else sources(path)
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


def sources(file: Path) -> list[Path]:
    """A file and, if it is Python, those of its own folder or package that its text imports, and so
    on."""
    files: list[Path] = []
    left = [file] if file.suffix == ".py" else []
    root = next((up for up in file.parents if not (up / "__init__.py").is_file()), file.parent)
    while left:
        one = left.pop()
        if one in files:
            continue
        files.append(one)
        with suppress(OSError, SyntaxError, ValueError, RecursionError):
            for name in _imported(ast.parse(one.read_bytes())):
                for place in (one.parent, root, root.parent):
                    near = place.joinpath(*name.split("."))
                    for path in (near.with_suffix(".py"), near / "__init__.py"):
                        if path.is_file() and _package(path) == _package(file):
                            left.append(path)
    return [file, *sorted(files[1:])]


def _package(path: Path) -> str:
    """What is installed together with a file: the name below site-packages; empty elsewhere."""
    parts = path.parts
    at = [i for i, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    return parts[at[-1] + 1] if at else ""


def _imported(tree: ast.AST) -> Iterator[str]:
    """The modules, without rlzoo's, and what may be modules, that a text imports."""
    for name in _names(tree):
        if name.partition(".")[0] != "rlzoo":
            yield name


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module
            yield from (f"{node.module or ''}.{alias.name}".lstrip(".") for alias in node.names)
