"""Where a run's numbers come from: its recipe, the libraries' versions, each component's code, and
the contents of the files that the recipe names.

`provenance.json` holds a part for each stretch of the run in which these did not change; a resumed
run is compared with the last part. Another recipe is refused, every other change is reported.
"""

import hashlib
import inspect
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlzoo import __version__
from rlzoo.errors import CheckpointError, RunError
from rlzoo.plugin.component import Component
from rlzoo.recipe.files import config_dirs, flatten, without_retired
from rlzoo.recipe.plan import Plan
from rlzoo.runs.disk import read_json, write_json
from rlzoo.runs.folder import RunFolder

FILE = "provenance.json"

# Keys that a run may change on its way: how far it goes, what it keeps, where it is and runs.
FREE = ("train.steps", "train.tokens", "train.minutes", "eval.every", "device", "model.name",
        "model.path", "model.trust_remote_code", "run.", "stop.", "checkpoint.", "loggers.",
        "parallel.")  # fmt: skip


def settle(
    folder: RunFolder, plan: Plan, state: Mapping[str, Any] | None, weights: str = ""
) -> tuple[str, list[str]]:
    """Compare a run with its provenance so far, and record that with which it continues. Returns
    its identity, fixed when it began, and what has changed, a line each.

    state: the checkpoint's that it continues from, None at the beginning. weights: checksum of the
    model in model.path. Raises RunError if its recipe was changed, CheckpointError where the
    checkpoint is another run's.
    """
    recipe = flatten(plan.recipe.stored())
    now: dict[str, Any] = {**code_of(plan), "recipe": recipe, "contents": contents(recipe)}
    now |= {"weights": weights} if weights else {}
    parts = _read(folder) if state else []
    last = parts[-1] if parts else {}
    at = state["step"] if state else 0
    defining = {k: v for k, v in recipe.items() if not k.startswith(FREE)}
    who = hashlib.sha256(json.dumps(defining, sort_keys=True).encode()).hexdigest()
    who = last.get("identity", who)  # a later version of rlzoo has more keys
    notes = []
    if last:
        changed = _differences(_with_new_keys(last["recipe"], recipe, plan.recipe.origins), recipe)
        mixed = [text for key, text in changed.items() if not key.startswith(FREE)]
        if mixed:
            file = folder.path / "recipe.yaml"
            raise RunError(
                f"{file} was changed since the run began: {', '.join(mixed)}; restore it, or train "
                f"another run with it (rlzoo run recipe={file} run.dir=NEW)"
            )
        for what in ("versions", "components"):
            changed |= _differences(last[what], now[what])
        changed |= _other_contents(last, now)
        notes = [f"changed after step {at}: {text}" for text in changed.values()]
    if state and state.get("identity", who) != who:
        line = f"step {at} belongs to another run, of another recipe"
        raise CheckpointError(f"{folder.checkpoints}: {line}")
    if notes or not now.keys() <= last.keys():
        write_json(folder.path / FILE, [*parts, {"from_step": at, "identity": who, **now}])
    return who, notes


def _with_new_keys(
    then: Mapping[str, Any], now: Mapping[str, Any], origins: Mapping[str, str]
) -> dict[str, Any]:
    """An old recipe with the keys that a later version of rlzoo has added, at their defaults, since
    a user cannot have edited those, and without those that are gone."""
    added = {k: v for k, v in now.items() if origins.get(k, "").endswith("defaults.yaml")}
    return added | without_retired(then)


def _read(folder: RunFolder) -> list[dict[str, Any]]:
    """The parts so far; empty for a run from before this file existed."""
    path = folder.path / FILE
    if not path.exists():
        return []
    try:
        parts = read_json(path)
        _ = parts[0]
        for p in parts:
            _ = p["from_step"], p["recipe"], p["versions"], p["components"]
            _ = [text.rpartition for text in p.get("contents", {}).values()]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        line = f"{path} cannot be read ({error}); remove it to continue without it"
        raise RunError(line) from None
    return parts


def _other_contents(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Key -> a line for each file or folder whose contents both parts have, and differ."""
    lines = {}
    for key, text in now["contents"].items():
        place, _, digest = text.rpartition(" ")
        was = then.get("contents", {}).get(key, text).rpartition(" ")[2]
        if was != digest:
            lines[key] = f"{key}: the contents of {place} ({was} -> {digest})"
    if "model.path" not in lines and "weights" in then and "weights" in now:
        lines |= _differences({"model": then["weights"]}, {"model": now["weights"]})
    return lines


def code_of(plan: Plan) -> dict[str, dict[str, str]]:
    """The versions of libraries; where each component comes from, with a hash of its file."""
    versions = {"rlzoo": __version__, "Python": platform.python_version()}
    for name in ("torch", "transformers", "peft"):  # as installed, imported or not
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    components = {
        f"{section} {b.name}": f"{b.component.origin}, source {source_hash(b.component)}"
        for section, b in plan.chosen.items()
    }
    return {"versions": versions, "components": components}


def source_hash(component: Component) -> str:
    """SHA-256 (16 digits) of a component's file, `unknown` if it was made in a session."""
    with suppress(OSError, TypeError):
        file = inspect.getsourcefile(inspect.unwrap(component.function))
        return hashlib.sha256(Path(str(file)).read_bytes()).hexdigest()[:16]
    return "unknown"


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """key -> `key: was -> is`, for keys that differ; only the command that began a run has
    `run.overwrite`."""
    keys = dict.fromkeys([*then, *now])
    values = {key: (then.get(key), now.get(key)) for key in keys if key != "run.overwrite"}
    return {key: f"{key}: {was} -> {is_}" for key, (was, is_) in values.items() if was != is_}


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
        files = [path]
        if path.is_dir():
            files = []
            for folder, folders, names in os.walk(path):
                folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
                visible = (Path(folder, name) for name in names if not name.startswith("."))
                files += [file for file in visible if file.is_file()]
        share = max(PIECE, MOST // max(1, len(files)))
        for number, file in enumerate(sorted(files)):
            size = file.stat().st_size
            hashed.update(f"{os.path.relpath(file, path)} {size}\n".encode(errors="replace"))
            count = -(-min(size, share) // PIECE) if number < FILES else 0
            with file.open("rb") as stream:
                for i in range(count):
                    if size > share:
                        stream.seek((size - PIECE) * i // max(1, count - 1))
                    hashed.update(stream.read(PIECE))
    return hashed.hexdigest()[:16]
