"""A folder that is written atomically."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlzoo.errors import UsageError, of_the_machine
from rlzoo.runs.disk import refuse_links, sync
from rlzoo.runs.lock import locked


@contextmanager
def staged(
    place: Path, option: str, *, keep: Callable[[Path], bool] = lambda aside: False
) -> Iterator[Path]:
    """A folder next to `place` that replaces it when the block ends.

    One process at a time. keep: whether the next block can use what an interrupted one left in the
    folder. Raises UsageError, which names the `option`, if `place` is not empty.
    """
    place = Path(os.path.abspath(place))
    aside = place.with_name(f".{place.name}.partial")
    check_free(place, option)
    with locked(place, place.with_name(f".{place.name}.lock")):
        check_free(place, option)
        if aside.is_symlink():
            raise UsageError(f"{option}: {aside} is a link; remove it")
        refuse_links(aside, UsageError)
        if aside.exists() and not keep(aside):
            shutil.rmtree(aside)
        aside.mkdir(exist_ok=True)
        try:
            yield aside
        except BaseException as error:
            nameless = getattr(error, "filename", None) is None
            if of_the_machine(error) and nameless and getattr(error, "errno", 0) is not None:
                error.filename = str(place)  # type: ignore[attr-defined]
            if not keep(aside) or not any(aside.iterdir()):
                shutil.rmtree(aside)
            raise
        for path in [*aside.rglob("*"), aside]:
            sync(path)
        if place.exists():
            place.rmdir()  # it is empty
        aside.rename(place)
        sync(place.parent)


def check_free(place: Path, option: str) -> None:
    """Raises UsageError if `place` is a file or a folder that is not empty."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{option}: {place} already exists and is not empty")
