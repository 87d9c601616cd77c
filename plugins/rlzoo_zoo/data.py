"""Rows of data: JSON, CSV and Parquet files, folders of these or of `datasets`, sets of the hub.

Plugin authors import `read`, `messages_of` and `hold_out` from `rlzoo`: `from rlzoo import data`.

None of these runs code: JSON and CSV are text, Parquet and Arrow contain tables, and from the hub
only data files are read, never a repository's script. Nothing is unpickled. A folder is only a
folder: a file outside of it is not read, whatever is written in it.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rlzoo.errors import DataError, NotCached, UsageError, first_line, nearest, typed_path
from rlzoo_zoo.files import READERS, SUFFIXES, Found, chosen, kind_of_file, require, rows_of
from rlzoo_zoo.messages import MEDIA as MEDIA
from rlzoo_zoo.messages import Message as Message
from rlzoo_zoo.messages import Prompt as Prompt
from rlzoo_zoo.messages import column as column
from rlzoo_zoo.messages import from_json as from_json
from rlzoo_zoo.messages import messages_of as messages_of
from rlzoo_zoo.messages import no_column as no_column
from rlzoo_zoo.messages import prompt_of as prompt_of

Item = TypeVar("Item")

KNOWN = "format=jsonl (also for arrays), csv or parquet"
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
ABOUT = re.compile(r"dataset_infos?\.json|state\.json|dataset_dict\.json")  # no rows

Patterns = dict[str | None, list[str]]


class Row(NamedTuple):
    """place: `file:line` or `file row 3`; number: from 0, over all files; values: None where there
    is a fault."""

    place: str
    number: int
    values: Mapping[str, Any] | None
    fault: str = ""


def read(path: str, *, format: str = "auto", subset: str = "", split: str = "") -> Iterator[Row]:
    """The rows of files, a folder or a hub id; raises DataError if it is missing.

    path: a file (`.gz` too), a folder, a hub id `owner/name`; or several files, as `a.jsonl,b.csv`
        or a pattern, `data/*.parquet`.
    format: auto (from the type, content and suffix of `path`), jsonl (JSON lines, or an array),
        csv (separated by commas, tabs, `;` or `|`, with a header), parquet, folder or hub.
    subset, split: which one to read, if a data set has several.
    """
    whole = typed_path(path)
    if format == "hub" or (format == "auto" and _is_hub_id(path)):
        return _numbered([_arrow(path, _from_hub(path, subset), split)])
    if format == "folder" and not whole.is_dir():
        raise DataError(f"there is no folder {path!r}{_beside(whole)}")
    if not whole.is_dir():
        files = [whole] if whole.exists() else _several(path)
    elif any((whole / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return _numbered([_arrow(path, _saved(path, whole), split)])
    else:
        files, split = _data_files(path, whole, subset, split), ""
    kinds = [_kind(file, format) for file in files]
    return _numbered([rows_of(f, kind, split) for f, kind in zip(files, kinds, strict=True)])


def _is_hub_id(path: str) -> bool:
    file = typed_path(path)
    known = file.exists() or file.parent.is_dir() or file.suffix in SUFFIXES
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) is not None and not known


def _several(path: str) -> list[Path]:
    """The files of a path with commas or a pattern; sorted, where it is a pattern."""
    found: list[Path] = []
    for part in filter(None, map(str.strip, path.split(","))):
        file = typed_path(part)
        if "*" in part or "?" in part:
            some = [f for f in map(Path, sorted(glob(str(file), recursive=True))) if f.is_file()]
        else:
            some = [file] * file.is_file()
        if not some:
            what = "file" if file.suffix in SUFFIXES else "file or folder"
            raise DataError(f"there is no {what} {part!r}{_beside(file)}")
        found += some
    return found


def _kind(file: Path, format: str) -> str:
    known = kind_of_file(file)
    if format in READERS and known not in (None, format):
        raise DataError(f"{file}: not {format} but {known}; format=auto reads it")
    if kind := format if format in READERS else known:
        return kind
    raise DataError(f"unknown format of {str(file)!r}; set {KNOWN}")


def _beside(file: Path) -> str:
    return nearest(file.name, [p.name for p in file.parent.glob("*")])


def _numbered(parts: Iterable[Iterator[Found]]) -> Iterator[Row]:
    first = after = 0
    for part in parts:
        for place, index, values, fault in part:
            after = first + index + 1
            yield Row(place, first + index, values, fault)
        first = after


# ---------------------------------------------------------------- folders and the hub


def _data_files(path: str, folder: Path, subset: str, split: str) -> list[Path]:
    """The files of one split in a folder, as its README.md lists them or by their names."""
    configs = _configs(path, folder)
    name = subset or ("default" if "default" in configs else "")
    if configs and name not in configs and (name or len(configs) > 1):
        wrong = f"there is no subset {name!r}" if name else "name the subset"
        raise DataError(
            f"{path}: {wrong}{nearest(name, configs)} (available: {', '.join(configs)})"
        )
    everywhere = {None: [f"{subset}/**/*" if subset else "**/*"]}
    patterns = configs.get(name) or next(iter(configs.values()), everywhere)
    found = {s: [f for p in some for f in _below(folder, p)] for s, some in patterns.items()}
    parts = _by_name(path, folder, found[None]) if None in found else found
    files = chosen(parts, split, path) if parts else []
    for file in files:
        _refuse_outside(path, folder, file)
    kinds = {file.name.removesuffix(".gz").rpartition(".")[2] for file in files}
    if len(kinds) > 1:
        raise DataError(f"{path}: has files of several formats ({', '.join(sorted(kinds))}); "
                        f"name one, or a pattern: {folder}/*.{min(kinds)}")  # fmt: skip
    if not files:
        raise DataError(f"{path}: no file of rows ({', '.join(SUFFIXES)})")
    return files


def _below(folder: Path, pattern: str) -> list[Path]:
    """The files of rows in a folder that fit a pattern, sorted, without hidden ones."""
    parts = Path(pattern).parts
    if not parts or Path(pattern).is_absolute() or ".." in parts or ":" in pattern:
        raise DataError(f"{folder}: README.md names data outside of this folder: {pattern!r}")
    found = [folder / pattern] if (folder / pattern).is_file() else sorted(folder.glob(pattern))
    return [
        f for f in found
        if f.is_file()
        and Path(f.name.removesuffix(".gz")).suffix.lower() in SUFFIXES
        and not ABOUT.fullmatch(f.name)
        and not any(part.startswith(".") for part in f.relative_to(folder).parts)
    ]  # fmt: skip


def _refuse_outside(path: str, folder: Path, file: Path) -> None:
    # The hub's cache keeps the files of a snapshot as links to its blobs.
    home = folder.resolve()
    home = home.parents[1] if home.parent.name == "snapshots" else home
    if not file.resolve().is_relative_to(home):
        raise DataError(f"{path}: {file.name} is outside of this folder; name that file itself")


def _by_name(path: str, folder: Path, files: Sequence[Path]) -> dict[str, list[Path]]:
    """Files by the split that a word of their names, or of their folders' names, is."""
    found: dict[str, list[Path]] = {}
    unnamed = []
    for file in files:
        parts = [*reversed(file.relative_to(folder).with_suffix("").parts)]
        words = [w for part in parts for w in re.split(r"[^a-z]+", part.lower())]
        split = next((s for w in words for s, names in SPLITS.items() if w in names), None)
        if split:
            found.setdefault(split, []).append(file)
        else:
            unnamed.append(file)
    if unnamed and "train" in found:
        raise DataError(f"{path}: which split is {unnamed[0].name}? Name files or a pattern, as "
                        f"{folder}/*train*")  # fmt: skip
    return {"train": unnamed, **found} if unnamed else found


def _configs(path: str, folder: Path) -> dict[str, Patterns]:
    """{subset: {split: patterns}} of README.md's header; empty without one. The split is None where
    names of files show it."""
    file = folder / "README.md"
    if not file.is_file():
        return {}
    import yaml

    text = file.read_text(encoding="utf-8", errors="replace")
    header = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
    try:
        configs = (yaml.safe_load(header[1]) or {}).get("configs") if header else None
        found: dict[str, Patterns] = {}
        for config in configs or []:
            where, named = config.get("data_dir"), config.get("data_files", [])
            parts = found[str(config["config_name"])] = {}
            for item in named if isinstance(named, list) else [named]:
                split, some = ("train", item)
                if not isinstance(item, str):
                    split, some = item["split"], item["path"]
                for pattern in [some] if isinstance(some, str) else some:
                    parts.setdefault(split, []).append(str(Path(where or "") / pattern))
            if not parts:
                parts[None] = [f"{where}/**/*" if where else "**/*"]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path}: README.md: its header cannot be read: {first_line(error)}"
        ) from None
    return found


def _saved(path: str, folder: Path) -> Any:
    """A data set of `save_to_disk`, whose lists of files name only files in it."""
    require("datasets", path)
    import datasets

    try:
        index = folder / "dataset_dict.json"
        names = json.loads(index.read_text("utf-8"))["splits"] if index.is_file() else [""]
        for part in (folder / name for name in names):
            state = json.loads((part / "state.json").read_text("utf-8"))
            for file in state["_data_files"]:
                _refuse_outside(path, folder, part / file["filename"])
        return datasets.load_from_disk(str(folder))
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: not a folder of save_to_disk: {error!r}") from None
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{path}: {first_line(error)}") from None


def _arrow(path: str, loaded: Any, split: str) -> Iterator[Found]:
    """The rows of what `datasets` has loaded, undecoded: no image or sound is opened."""
    if isinstance(loaded, Mapping):
        loaded = chosen(loaded, split, path)

    def rows() -> Iterator[Found]:
        index = 0
        for table in loaded.with_format("arrow").iter(1000):
            for values in table.to_pylist():
                yield f"{path} row {index}", index, values, ""
                index += 1

    return rows()


def _from_hub(name: str, subset: str) -> Any:
    require("datasets", name)
    import datasets

    from rlzoo.lm import reachable  # here: it imports torch

    datasets.disable_progress_bars()
    # Where there is no network, the library's own attempts take half a minute to fail.
    offline = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = offline or not reachable(datasets.config.HF_ENDPOINT)
    try:
        builder = datasets.load_dataset_builder(name, subset or None)
        for files in (builder.config.data_files or {}).values():
            for file in files:
                if not str(file).startswith("hf://datasets/"):
                    raise DataError(f"{name}: names data outside of the hub: {str(file)!r}")
        builder.download_and_prepare()
        return builder.as_dataset()
    except ConnectionError:
        why = "HF_HUB_OFFLINE is set" if offline else "there is no network"
        cache = datasets.config.HF_DATASETS_CACHE
        raise NotCached(f"{name!r} is not in the cache ({cache}), and {why}") from None
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{name}: {first_line(error)}") from None
    finally:
        datasets.config.HF_HUB_OFFLINE = offline


def hold_out(
    rows: Sequence[Item], prompt: Callable[[Item], Any], fraction: float, seed: int
) -> tuple[list[Item], list[Item]]:
    """(training rows, held-out rows), with all rows of a prompt on one side."""
    prompts = list(dict.fromkeys(repr(prompt(row)) for row in rows))
    if len(prompts) < 2:
        raise UsageError("there is only one prompt: held-out rows need different prompts")
    random.Random(seed).shuffle(prompts)
    held = set(prompts[: min(len(prompts) - 1, max(1, round(fraction * len(prompts))))])
    sides: tuple[list[Item], list[Item]] = ([], [])
    for row in rows:
        sides[repr(prompt(row)) in held].append(row)
    return sides
