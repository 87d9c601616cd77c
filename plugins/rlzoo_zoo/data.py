"""Rows of data: JSONL, Parquet, folders of `datasets`, data sets of the hub.

Plugin authors import `read`, `messages_of` and `hold_out` from `rlzoo.data`.

None of these runs code: JSON is text, Parquet and Arrow contain tables, and from the hub only data
files are read, never a repository's script. Nothing is unpickled.
"""

import importlib.util
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rlzoo.errors import DataError, NotCached, UsageError, first_line, in_short, nearest, typed_path

Message = dict[str, str]
Item = TypeVar("Item")

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class Row(NamedTuple):
    """place: `file:line` or `file row 3`; number: from 0; values: None where there is a fault."""

    place: str
    number: int
    values: Mapping[str, Any] | None
    fault: str = ""


def read(path: str, *, format: str = "auto", subset: str = "", split: str = "") -> Iterator[Row]:
    """The rows of a file, a folder or a hub id; raises DataError if it is missing.

    format: auto (from the type and suffix of `path`), jsonl, parquet, folder (of `save_to_disk`, or
        of data files) or hub.
    subset, split: which one to read, if a data set has several.
    """
    kind = kind_of(path) if format == "auto" else format
    file = typed_path(path)
    if kind in ("jsonl", "parquet") and not file.is_file():
        raise DataError(f"there is no file {path!r}{_beside(file)}")
    if kind == "jsonl":
        return _json_lines(file, path)
    if kind == "parquet":
        return _parquet(file, path)
    return _data_set(path, kind, subset, split)


def kind_of(path: str) -> str:
    file = typed_path(path)
    if file.is_dir():
        return "folder"
    if file.suffix in SUFFIXES:
        return SUFFIXES[file.suffix]
    if file.is_file():
        raise DataError(f"unknown format of {path!r}; set format=jsonl or format=parquet")
    if path.count("/") == 1 and path[0] not in "./~" and not file.parent.is_dir():
        return "hub"
    raise DataError(f"there is no file or folder {path!r}{_beside(file)}")


def _beside(file: Path) -> str:
    return nearest(file.name, [p.name for p in file.parent.glob("*")])


def messages_of(value: Any) -> list[Message]:
    """Chat messages, checked; raises ValueError."""
    if not isinstance(value, list) or not value or not all(map(_is_message, value)):
        text = in_short(value)
        raise ValueError(f"must be a string, or messages with role and content. Got {text}")
    return [{"role": m["role"], "content": m["content"]} for m in value]


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(key), str) for key in ("role", "content")
    )


def _json_lines(file: Path, name: str) -> Iterator[Row]:
    with file.open("rb") as lines:
        for line_number, line in enumerate(lines, 1):
            place, index = f"{name}:{line_number}", line_number - 1
            try:
                text = line.decode("utf-8-sig" if line_number == 1 else "utf-8").strip()
                if not text:
                    continue
                values = json.loads(text)
                if "\\ud" in text.lower():  # half a character may be written so, and stays none
                    json.dumps(values, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                yield Row(place, index, None, "half a character (a lone surrogate)")
            except UnicodeDecodeError:
                yield Row(place, index, None, "not UTF-8")
            except json.JSONDecodeError as error:
                what = error.msg.removesuffix(" starting at")
                yield Row(place, index, None, f"not JSON: {what} at column {error.colno}")
            except (RecursionError, ValueError):  # nested or numbers without end
                yield Row(place, index, None, "not JSON: too large")
            else:
                fault = "" if isinstance(values, dict) else "not an object with columns"
                yield Row(place, index, None if fault else values, fault)


def _parquet(file: Path, name: str) -> Iterator[Row]:
    _require("pyarrow", name)
    import pyarrow
    from pyarrow import parquet

    index = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches():
                for values in batch.to_pylist():
                    yield Row(f"{name} row {index}", index, values)
                    index += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: not a Parquet file: {first_line(error)}") from None


def _data_set(path: str, kind: str, subset: str, split: str) -> Iterator[Row]:
    _require("datasets", path)
    import datasets

    datasets.disable_progress_bars()
    folder = typed_path(path)
    if kind == "folder" and not folder.is_dir():
        raise DataError(f"there is no folder {path!r}{_beside(folder)}")
    saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        if kind == "folder" and saved:
            loaded = datasets.load_from_disk(str(folder))
        elif kind == "folder":
            loaded = datasets.load_dataset(str(folder), subset or None)
        else:
            loaded = _from_hub(path, subset)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{path}: {first_line(error)}") from None
    if isinstance(loaded, Mapping):
        if split not in loaded and (split or len(loaded) > 1):
            there = ", ".join(loaded)
            wrong = f"there is no split {split!r}" if split else "name the split"
            raise DataError(f"{path}: {wrong}{nearest(split, loaded)} (available: {there})")
        loaded = loaded[split] if split else next(iter(loaded.values()))
    return (Row(f"{path} row {i}", i, values) for i, values in enumerate(loaded))


def _from_hub(name: str, subset: str) -> Any:
    import datasets

    from rlzoo.lm import reachable  # here: it imports torch

    # Where there is no network, the library's own attempts take half a minute to fail.
    offline = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = offline or not reachable(datasets.config.HF_ENDPOINT)
    try:
        return datasets.load_dataset(name, subset or None)
    except ConnectionError:
        why = "HF_HUB_OFFLINE is set" if offline else "there is no network"
        cache = datasets.config.HF_DATASETS_CACHE
        raise NotCached(f"{name!r} is not in the cache ({cache}), and {why}") from None
    finally:
        datasets.config.HF_HUB_OFFLINE = offline


def _require(package: str, path: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise DataError(f"{path}: needs {package}: pip install 'rlzoo-llm[data]'")


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
