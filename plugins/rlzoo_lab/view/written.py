"""Options that name a file or a folder to write, checked before the verb starts its work."""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError, UsageError, need, typed_path
from rlzoo.runs.disk import DEVICES

PRINTED = "-"  # the place of a text that is printed instead


class Written(argparse.Action):
    """An argparse action for a file to write: raises UsageError early if it cannot be written.

    folder: it names a folder. suffixes: the endings that the name may have. figures: the file has
    figures,
        so matplotlib is required. The rest goes to argparse.
    """

    def __init__(
        self,
        *args: Any,
        folder: bool = False,
        suffixes: Sequence[str] = (),
        figures: bool = False,
        **more: Any,
    ):
        super().__init__(*args, **more)
        self.folder, self.suffixes, self.figures = folder, suffixes, figures

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if self.figures:
            need("matplotlib", option_string or self.dest)
        if values != self.const:
            refuse_unwritable(values, option_string, folder=self.folder, suffixes=self.suffixes)
        setattr(namespace, self.dest, values)


def refuse_unwritable(
    path: str, option: str, *, folder: bool = False, suffixes: Sequence[str] = ()
) -> None:
    """Raise UsageError, which names the `option`, if no file (or with `folder`, no folder) can be
    written at `path`, or if its name ends in none of the `suffixes`. Leaves nothing behind."""
    try:
        fault = _unwritable(typed_path(path) and Path(path), folder)
    except OSError as error:
        fault = f"cannot write {path}: {error.strerror}"
    except RlzooError as error:  # no file has such a name
        fault = str(error)
    if not fault and suffixes and not path.endswith(tuple(suffixes)):
        fault = f"must end in {' or '.join(suffixes)}. Got {path!r}"
    if fault:
        raise UsageError(f"{option}: {fault}", key=option, kind="not-writable")


def _unwritable(place: Path, folder: bool) -> str:
    """The reason that a place cannot be written, or an empty string; raises OSError."""
    if place.parent in DEVICES and place.exists():
        return ""
    if place.is_symlink():
        return f"{place} is a link to {os.readlink(place)}; use that {_kind(folder)}"
    if place.exists() and place.is_dir() != folder:
        return f"{place} is a {_kind(not folder)}; give a {_kind(folder)}"
    if place.is_file():
        if place.stat().st_nlink > 1:
            return f"{place} is a hard link; replace it with a copy"
        os.close(os.open(place, os.O_WRONLY | os.O_NOFOLLOW))
    there = place if place.is_dir() else place.parent
    if folder:  # made with the folders above it
        there = next(above for above in (place, *place.absolute().parents) if above.exists())
    if not there.is_dir():
        return f"there is no folder {there}; create it first"
    if not place.exists() or place.is_file() or folder:  # not a pipe, which is written to
        tempfile.TemporaryFile(dir=there).close()  # a new file replaces the old one
    return ""


def _kind(folder: bool) -> str:
    return "folder" if folder else "file"
