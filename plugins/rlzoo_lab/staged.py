"""A folder that is there whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlzoo.errors import UsageError
from rlzoo.runs.disk import refuse_links, sync
from rlzoo.runs.lock import locked


@contextmanager
def staged(place: Path, option: str, *, keep: bool = False) -> Iterator[Path]:
    """A folder next to `place` that replaces it, complete, when the block ends.

    One process at a time. keep: what is left of a block that did not end stays, for the next.
    Raises UsageError, which names the `option`, where `place` holds something.
    """
    place = Path(os.path.abspath(place))
    aside = place.with_name(f".{place.name}.partial")
    check_free(place, option)
    with locked(place, place.with_name(f".{place.name}.lock")):
        check_free(place, option)
        if aside.is_symlink():
            raise UsageError(f"{option}: {aside} is a link; remove it")
        refuse_links(aside, UsageError)
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
