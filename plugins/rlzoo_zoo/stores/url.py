"""A copy of a run's folder at a URL (file, s3, gs, ...) with fsspec.

The store holds the same folder, file by file. The mark of a whole folder is written last: a
checkpoint's manifest.json, best.json, summary.json. So a reader, at any moment, finds a
whole checkpoint and the lines up to it. `.attempt` there has the run's identity and its writer:
taking a run up raises its number, and a process that finds another's there writes no more. `.index`
there lists what the run has sent: nothing else is ever removed.
"""

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlzoo.errors import (
    RlzooError,
    RunError,
    StoreError,
    Unfinished,
    UsageError,
    disk_is_full,
    first_line,
    nearest,
)

FENCE, INDEX = ".attempt", ".index"  # in the store
NEVER_EMPTY = (".json", ".yaml")
NOTE = ".sent"  # in the run's own folder: what was sent where, and by which attempt
BEGUN = {"recipe.yaml", "metrics.jsonl", "provenance.json"}  # all there is before a run begins
WRITTEN = re.compile(  # what a run writes, and removes again
    r"(metrics|samples)\.jsonl|(recipe\.yaml|(provenance|summary|failed)\.json)"
    r"|(checkpoints|model|best|batches|evaluations)/.+"
)
WAITS = (2.0, 10.0)  # seconds before the end of a run is sent once more

Signature = list[int]  # bytes, and nanoseconds of the last change


class Store:
    """A URL that a run's folder is kept at, and what is known to be there."""

    def __init__(self, url: str):
        if find_spec("fsspec") is None:
            raise StoreError(f"{url}: needs fsspec: pip install 'rlzoo-llm[lab]'")
        import fsspec  # here: a third of a second
        from fsspec.implementations.dirfs import DirFileSystem

        # Those that a program has registered as classes are only in the registry.
        self.url, known = url, [*fsspec.available_protocols(), *fsspec.registry]
        for name in (part.partition("://")[0] for part in url.split("::")):
            if name not in known:
                near = nearest(name, known) or " (supported: file, s3, gs, az, sftp, hf, ...)"
                raise UsageError(f"{url}: {name!r} is not supported{near}")
        with self._reached():
            whole, root = fsspec.url_to_fs(url)
            self.fs = DirFileSystem(root.rstrip("/"), whole)  # names within the folder
        self.fence: dict[str, Any] = {}
        self.sent: dict[str, Signature | None] = {}  # what is there; None: of unknown content
        self.index: set[str] = set()  # what the run has sent, ever

    def names(self) -> set[str]:
        """The files there, as paths within the folder."""
        with self._reached():
            self.fs.invalidate_cache()
            try:
                self.fs.ls("")  # `find` is silent on a place that cannot be read
            except FileNotFoundError:
                return set()
            found = self.fs.find("", detail=True)
        # After a power cut, a file may be empty; JSON and YAML never are.
        empty = {
            n for n, about in found.items() if about.get("size") == 0 and n.endswith(NEVER_EMPTY)
        }
        return {name for name in found if name not in empty and not _hidden(name)}

    def check_free(self, overwrite: bool) -> None:
        """Raises RunError where something is there that is not to be replaced."""
        names = self.names()
        a_run = "recipe.yaml" in names and any(
            name == "metrics.jsonl" or name.startswith("checkpoints/") for name in names
        )
        if names <= BEGUN or (overwrite and a_run):
            return
        how = "it is not a run"
        if a_run:
            how = (
                f"use `rlzoo resume {self.url}` to continue it, or run.overwrite=true to replace it"
            )
        raise RunError(f"store: {self.url} is not empty; {how}")

    def begin(self, local: Path) -> None:
        """A new run in the folder `local` is kept here; what a run wrote here goes, its marks
        first, and nothing else: its recipe and its lines are replaced."""
        self._check_apart(local)
        self._claim(anew=True)
        self.sent = dict.fromkeys(self.names())
        gone = {n for n in self.sent if WRITTEN.fullmatch(n)} - {"recipe.yaml", "metrics.jsonl"}
        for name in sorted(gone, key=lambda n: (n != _mark(n), n)):
            self._remove(name)
        self.push(local)

    def take_up(self, local: Path) -> None:
        """Continue the run in the folder `local`, which becomes what is here where this is
        further; who wrote here before writes no more. Raises RunError where that is another."""
        self._check_apart(local)
        note, before = _note(local), self._fence()
        there, mine = self.names(), _files(local)
        recipe = "recipe.yaml"
        if not there <= BEGUN and (recipe in mine or recipe not in there):
            self._check_same(local, before, note.get("fence"), _furthest(mine) >= 0)
        before = self._claim()
        self.index = self._listed()
        ours = note.get("url") == self.url and note.get("fence") == before
        self.sent = {name: note["sent"].get(name) if ours else None for name in there}
        ahead = _furthest(there) - _furthest(mine) if there else -1
        if ahead > 0 or (ahead == 0 and not ours):
            self.fetch(local)
        elif not ours:
            for mark in {_mark(name) for name in there} & mine.keys() & there:
                if self._read(mark) == (local / mark).read_bytes():
                    self.sent |= {n: mine[n] for n in mine if n in there and _mark(n) == mark}
        self._take_note(local)

    def push(self, local: Path) -> int:
        """Send what changed since; returns how many files. Raises Unfinished where another process
        has taken the run up, StoreError where it cannot be done."""
        mine = _files(local)
        if not mine.keys() <= self.index:
            self._check()
            self._write(INDEX, sorted(self.index | mine.keys()))
            self.index |= mine.keys()
        changed = {name for name, now in mine.items() if self.sent.get(name) != now}
        spoilt = {_mark(name) for name in changed} & self.sent.keys()
        for mark in sorted(spoilt):  # half of it will be of before, for a while
            self._remove(mark)
        for name in sorted(changed | (spoilt & mine.keys()), key=_order):
            self._put(local / name, name)
            self.sent[name] = mine[name]
        gone = {n for n in self.index & self.sent.keys() - mine.keys() if WRITTEN.fullmatch(n)}
        for name in sorted(gone, key=lambda n: (n != _mark(n), n)):
            self._remove(name)
        self._take_note(local)
        return len(changed)

    def mirror(self, local: Path, tell: Callable[[str], None], last: bool = False) -> None:
        """`push`, but a store that fails ends no run: the folder here is whole, and the next
        checkpoint sends what is missing. At the `last` it tries again, and raises Unfinished."""
        waits = iter(WAITS if last else ())
        while True:
            try:
                self.push(local)
                return
            except StoreError as error:
                wait = next(waits, None)
                if wait is not None:
                    time.sleep(wait)
                elif last:
                    how = (
                        f"everything is in {local}; use `rlzoo resume {local} --store {self.url}` "
                        "to send it"
                    )
                    raise Unfinished(f"{error}; {how}") from error
                else:
                    tell(
                        f"{error}; the run continues, and the next checkpoint sends the missing "
                        "files"
                    )
                    return

    def put(self, path: Path) -> None:
        """A file into the folder itself, even while another process writes there."""
        self._refuse_links()
        with self._reached():
            self._aside(path.name, lambda to: self.fs.put_file(str(path), to))

    def fetch(
        self, local: Path, wanted: Callable[[str], bool] = lambda name: True, large: bool = True
    ) -> None:
        """Copy what is whole, and requested, to the folder `local`; large: with weights."""
        for _ in range(3):
            names = self.names()
            try:
                for name in sorted(filter(wanted, names), key=_order):
                    if (_mark(name) in names or not _mark(name)) and (large or _is_small(name)):
                        self._get(name, local / name)
                        self.sent[name] = _signature(local / name)
                return
            except FileNotFoundError as error:  # its writer has removed it meanwhile
                gone = error
        raise StoreError(f"{self.url}: {gone} keeps disappearing") from gone

    def copy(self, large: bool) -> Path:
        """A folder that holds the runs, to be read: itself on a disk, else below the user's cache.
        large: with weights. Raises RunError where there is none."""
        names = self.names()
        if not any(name.endswith(("recipe.yaml", "sweep.json")) for name in names):
            what = "no recipe.yaml" if names else "nothing"
            raise RunError(f"{self.url} is not a run; it contains {what}")
        if self.on_disk():
            return Path(self.fs.path)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlzoo"
        local = cache.joinpath(*(p for p in re.split(r"[:/]+", self.url) if p.strip(".")))
        for name in _files(local).keys() - names:
            (local / name).unlink()
        self.fetch(local, large=large)
        return local

    def _claim(self, anew: bool = False) -> dict[str, Any]:
        """Raise the number of attempts; returns the former note. `anew`: for another run."""
        self._refuse_links()
        before = self._fence()
        number = before.get("attempt", 0) + 1
        me = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}"
        run = uuid.uuid4().hex if anew else before.get("run", uuid.uuid4().hex)
        self.fence = {"attempt": number, "by": me, "id": uuid.uuid4().hex, "run": run}
        self._write(FENCE, self.fence)
        return before

    def _check_apart(self, local: Path) -> None:
        mine, root = local.absolute(), Path(self.fs.path)
        if mine.is_relative_to(root) or root.is_relative_to(mine):
            raise UsageError(f"store: {self.url} and the run's folder {local} contain one another")

    def _refuse_links(self) -> None:
        for path in Path(self.fs.path).rglob("*") if self.on_disk() else ():
            if path.is_symlink():
                raise RunError(f"store: {path} is a link; rlzoo does not write through links")

    def _check_same(self, local: Path, before: dict[str, Any], mine: Any, trained: bool) -> None:
        """Raises RunError where the folder `local` is not of the run that is kept here. The recipe
        decides of one that has nothing `trained`, and where `.attempt` names no run."""
        named = before.get("run")
        if named and isinstance(mine, dict) and mine.get("run") == named:
            return
        with suppress(FileNotFoundError):
            there, here = self._read("recipe.yaml"), (local / "recipe.yaml").read_bytes()
            if there == here and not (named and trained):
                return
            if (
                not there and not named and _note(local).get("url") == self.url
            ):  # a power cut emptied what this run had sent
                return
        raise RunError(
            f"store: {self.url} contains something other than this run, because {local} was never "
            f"sent there; use `rlzoo resume {self.url} --dir NEW` to continue the run at the URL"
        )

    def _fence(self) -> dict[str, Any]:
        try:
            found = dict(json.loads(self._read(FENCE)))
            return found if type(found.get("attempt")) is int else {}
        except (FileNotFoundError, ValueError, TypeError, RecursionError):
            return {}

    def _listed(self) -> set[str]:
        try:
            return {str(name) for name in json.loads(self._read(INDEX))}
        except (FileNotFoundError, ValueError, TypeError, RecursionError):
            return set()

    def _write(self, name: str, found: Any) -> None:
        with self._reached():
            self._aside(name, lambda to: self.fs.pipe_file(to, json.dumps(found).encode()))

    def _check(self) -> None:
        now = self._fence()
        if not now:
            raise StoreError(f"{self.url}: its {FENCE} is missing; something may have emptied it")
        if now != self.fence:
            raise Unfinished(
                f"{self.url}: attempt {now['attempt']} ({now['by']}) has taken over this run; "
                f"this one, attempt {self.fence['attempt']}, ends without changing it"
            )

    def _put(self, path: Path, name: str) -> None:
        self._check()
        with self._reached():
            if _mark(name) in ("", name):
                self._aside(name, lambda to: self.fs.put_file(str(path), to))
            else:  # half of it does no harm as long as the mark is not there
                folder = name.rpartition("/")[0]
                self._make(folder)
                self.fs.put_file(str(path), name)
                self._sync(name, folder)  # before the mark is written

    def _aside(self, name: str, write: Callable[[str], Any]) -> None:
        """A file that is replaced whole, also where a write is not: on a disk."""
        folder, slash, last = name.rpartition("/")
        aside = f"{folder}{slash}.{last}.partial"
        self._make(folder)
        write(aside)
        self._sync(aside)
        self.fs.mv(aside, name)
        self._sync(folder)

    def _make(self, folder: str) -> None:
        """A folder there, with those above it."""
        new = self.on_disk() and not Path(self.fs.path, folder).is_dir()
        self.fs.makedirs(folder, exist_ok=True)
        while new and folder:
            folder = folder.rpartition("/")[0]
            self._sync(folder)
        if new:
            with suppress(PermissionError):  # it need not be readable
                self._sync("..")

    def _sync(self, *names: str) -> None:
        """On a disk, wait until these are there after a power cut; an object store confirms it."""
        for name in names if self.on_disk() else ():
            handle = os.open(Path(self.fs.path, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _remove(self, name: str) -> None:
        self._check()
        with self._reached():
            self.fs.rm_file(name)
            if name == _mark(name):
                self._sync(name.rpartition("/")[0])
        if self.on_disk():
            with suppress(OSError):  # it holds something else
                os.rmdir(Path(self.fs.path, name).parent)
        del self.sent[name]

    def on_disk(self) -> bool:
        from fsspec.implementations.local import LocalFileSystem

        return isinstance(self.fs.fs, LocalFileSystem)

    def _read(self, name: str) -> bytes:
        with self._reached(FileNotFoundError):
            return self.fs.cat_file(name)

    def _get(self, name: str, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        aside = to.with_name(f".{to.name}.partial")
        with self._reached(FileNotFoundError):
            self.fs.get_file(name, str(aside))
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        aside.replace(to)

    def _take_note(self, local: Path) -> None:
        note = {"url": self.url, "fence": self.fence, "sent": self.sent}
        aside = local / f"{NOTE}.partial"
        aside.unlink(missing_ok=True)
        with open(aside, "x", encoding="utf-8") as file:  # follows no link
            json.dump(note, file)
        aside.replace(local / NOTE)

    @contextmanager
    def _reached(self, but: type[Exception] = RlzooError) -> Iterator[None]:
        """The border to fsspec and its backends: whatever it raises, `but` one kind, is a
        StoreError."""
        try:
            yield
        except (RlzooError, MemoryError, but):
            raise
        except Exception as error:
            said = first_line(error)
            if disk_is_full(error):
                said = "no space left on device"
            elif not isinstance(error, ImportError):  # which names what to install
                said = f"{type(error).__name__}: {said}"
            raise StoreError(f"store {self.url}: {said}") from error


def _note(local: Path) -> dict[str, Any]:
    try:
        note = json.loads((local / NOTE).read_text(encoding="utf-8"))
        return {"url": str(note["url"]), "fence": note["fence"], "sent": dict(note["sent"])}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _files(local: Path) -> dict[str, Signature]:
    found = {}
    for path in local.rglob("*"):
        name = path.relative_to(local).as_posix()
        with suppress(FileNotFoundError):  # a logger's, that is gone again
            if not _hidden(name) and path.is_file():
                found[name] = _signature(path)
    return found


def _signature(path: Path) -> Signature:
    return [path.stat().st_size, path.stat().st_mtime_ns]


def _is_small(name: str) -> bool:
    """Whether a file does not belong to a model: comparing runs uses these."""
    return not re.match(r"([^/]+/)?(checkpoints|model|best)/", name)


def _hidden(name: str) -> bool:
    """Whether it is not a run's: hidden, or a key of a bucket that leads elsewhere, `../x`,
    `/x`."""
    return any(part.startswith(".") or not part for part in name.split("/"))


def _mark(name: str) -> str:
    """The file that marks what this one belongs to as whole; a mark's own name for itself. For a
    run's file, or that of one of a sweep's runs."""
    found = re.match(r"([^/]+/)??(checkpoints/[^/]+/|best/|model/|summary\.json$)", name)
    if not found:
        return ""
    run, part = found[1] or "", found[2]
    last = {"best/": "best.json"}.get(part, "manifest.json")
    return f"{run}summary.json" if part in ("model/", "summary.json") else f"{run}{part}{last}"


def _order(name: str) -> tuple[int, int, str, bool]:
    """Lines and evaluations; the newest checkpoint, then those before; the end. Marks last."""
    mark, step = _mark(name), re.search(r"checkpoints/step-(\d+)/", name)
    part = 1 if step else 2 if mark.endswith("summary.json") else 0
    return part, -int(step[1]) if step else 0, mark, name == mark


def _furthest(names: Collection[str]) -> int:
    """The step of the last whole checkpoint of a run's files, -1 where there is none."""
    if "summary.json" in names:
        return 10**12  # finished
    steps = (re.fullmatch(r"checkpoints/step-(\d+)/manifest.json", name) for name in names)
    return max((int(found[1]) for found in steps if found), default=-1)
