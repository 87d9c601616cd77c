"""A copy of a run's folder at a URL, by a plugin with the methods listed in
docs/plugin-authors.md."""

import os
import re
from pathlib import Path

from rlzoo.errors import UsageError
from rlzoo.plugin.border import border
from rlzoo.plugin.installed import installed
from rlzoo.plugin.protocols import Store

SECRET = re.compile(r"://[^/]*:[^/]*@|\?.*=")  # a password, or a query
NOTE = ".store"  # in a run's folder: the URL that it is kept at


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a text is a URL, not a path."""
    return "://" in str(place)


def open_store(url: str) -> Store:
    """The store of a URL: the entry point of the group `rlzoo.stores` that has its protocol's name,
    or `any`. Raises UsageError if there is none or the URL holds a secret, and the plugin's own
    RlzooError."""
    if not is_url(url):
        raise UsageError(f"store: must be a URL such as file:///mnt/runs/a. Got {url!r}")
    if SECRET.search(url):
        line = "must not have a password or a query, which files show; set them in the environment"
        raise UsageError(f"store: the {url.partition('://')[0]}:// URL {line}")
    points = {point.name: point for point in installed("rlzoo.stores")}
    point = points.get(url.partition("://")[0]) or points.get("any")
    if point is None:
        raise UsageError(f"store: no installed plugin can store runs at {url}")
    with border(f"store {point.value}"):
        return point.load()(url)


def copy_of(place: str | os.PathLike[str], large: bool = True) -> Path:
    """The folder that a path names; for a URL a copy to read, if `large` with weights."""
    return open_store(str(place)).copy(large) if is_url(place) else Path(place)


def kept_at(local: Path) -> str:
    """The URL that a run's folder is kept at, as a note in it has it, or an empty string. The
    folder's maker wrote that note: it is shown, without secrets, and never followed."""
    try:
        note = (local / NOTE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    url = note.strip()
    if not is_url(url) or not url.isprintable():
        return ""
    return re.sub("://[^/]*:[^/]*@", "://***@", re.sub(r"\?.*=.*", "?***", url))
