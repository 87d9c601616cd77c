"""A run's folder: its contents, and how it is created and found."""

import itertools
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rlzoo.errors import RecipeError, RunError
from rlzoo.format.text import say
from rlzoo.plugin.protocols import Store
from rlzoo.recipe.compose import COMMAND_LINE, Recipe
from rlzoo.recipe.files import parse_yaml
from rlzoo.runs.disk import (
    json_text,
    no_link,
    read_mapping,
    refuse_devices,
    refuse_links,
    sync,
    write_atomically,
    write_synced,
)
from rlzoo.runs.lock import locked
from rlzoo.runs.store import NOTE, copy_of, open_store

# What is in a run's folder before it begins, and what it writes, except loggers' files.
BEGUN = {"recipe.yaml", "metrics.jsonl", "provenance.json"}
WRITTEN = ("summary.json", "failed.json", "checkpoints", "model", "best", "batches", "evaluations",
           "samples.jsonl")  # fmt: skip

# The files in these folders: checkpoints and the like, and what transformers and peft save.
WITHIN = ("step-*", ".*.partial", "best.json", "config.json", "generation_config.json",
          "model*.safetensors", "model.safetensors.index.json", "adapter_config.json",
          "adapter_model.safetensors", "tokenizer*", "special_tokens_map.json", "added_tokens.json",
          "vocab.*", "merges.txt", "spiece.model", "chat_template*")  # fmt: skip

SUMMARY = {"steps": int, "task": str, "eval_metric": str, "stopped": str, "imported": dict,
           **dict.fromkeys(("tokens", "seconds", "eval_before", "eval_after", "eval_samples",
                            "eval_prompts", "eval_greedy_before", "eval_greedy_after",
                            "eval_gain"), float),
           }  # fmt: skip

STEP = re.compile(rb'\{"step": (\d+)')  # as every line of a run begins


@dataclass
class RunFolder:
    """`runs/<name>/`: recipe.yaml, metrics.jsonl, samples.jsonl, summary.json, checkpoints/,
    model/. store: the store of its copy, if any. new: the run has not begun."""

    path: Path
    store: Store | None = None
    new: bool = False

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """One JSON object as one line; a kill leaves at most an unfinished last line."""
        with open(self.path / name, "a", encoding="utf-8", opener=no_link) as file:
            file.write(json_text(record) + "\n")

    def lines(self, name: str, troubles: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """The lines of a file, one at a time; unreadable lines are left out, and `troubles` gains
        a line at the end."""
        path = self.path / name
        if not path.exists():
            return
        bad, number = [], 0
        with open(path, "rb") as file:  # only at newlines: texts may hold U+2028
            for number, raw in enumerate(file, 1):
                try:
                    line = json.loads(raw.decode())
                except (ValueError, RecursionError):
                    line = None
                step = line.get("step") if isinstance(line, dict) else None
                if type(step) is int and abs(step) < 2**53:
                    yield line
                else:
                    bad.append(number)
        if bad and troubles is not None:
            ignored = f"ignoring {len(bad)} of {number} lines"
            troubles.append(f"{name}: line {bad[0]} cannot be read; {ignored}")

    def rewind(self, name: str, step: int) -> None:
        """Remove lines after `step` and an unfinished last line: a resumed run writes them again.

        Lines are in the order of their steps, so that the file is cut, not rewritten.
        """
        path, keep = self.path / name, 0
        if not path.exists():
            return
        with open(path, "rb") as file:
            for raw in file:
                match = STEP.match(raw)
                if not raw.endswith(b"\n") or (match and int(match[1]) > step):
                    break
                keep += len(raw)
        if keep < path.stat().st_size:
            os.truncate(path, keep)
            sync(path)

    def recipe(self) -> dict[str, Any]:
        """The content of recipe.yaml, as a tree; raises RunError if it is damaged."""
        return read_mapping(self.path / "recipe.yaml", parse_yaml)

    def summary(self) -> dict[str, Any]:
        """Empty while the run is not finished; raises RunError if it is damaged."""
        path = self.path / "summary.json"
        return read_mapping(path, kinds=SUMMARY) if path.exists() else {}


@contextmanager
def create_folder(recipe: Recipe, url: str | None = None) -> Iterator[RunFolder]:
    """The recipe's run folder, new and locked; raises RunError if it exists.

    A folder in which a run was killed before it began counts as new. url: its store, if any.
    """
    store = open_store(url) if url is not None else None
    if store:
        store.check_free(recipe.config.run.overwrite)
    wanted = recipe.config.run.dir
    name = f"{recipe.name}-{recipe.config.task.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = Path("runs", name) if wanted is None else Path(wanted)
    for n in itertools.count(2) if wanted is None else ():
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            break
        path = Path("runs", f"{name}-{n}")
    by_file = recipe.origins.get("run.dir", COMMAND_LINE) != COMMAND_LINE
    below = (Path.cwd(), Path("runs").resolve())  # the latter may be a link of the user's
    if wanted and by_file and not any(path.resolve().is_relative_to(place) for place in below):
        line = "is not below the current folder; only the command line can set such a path"
        raise RecipeError(f"{recipe.blame('run.dir')}: {path} {line} (run.dir=...)")
    if path.exists() and not path.is_dir():
        raise RunError(f"run.dir: {path} is a file", key="run.dir", kind="taken")
    with locked(path):
        inside = {p.name for p in path.iterdir() if not p.name.startswith(".")}
        lines = path / "metrics.jsonl"
        begins = inside <= BEGUN and lines.name in inside and not lines.stat().st_size
        if inside and not begins:
            if not recipe.config.run.overwrite:
                line = f"run.dir: {path} already exists; use `rlzoo resume {path}` to continue it,"
                line += " or run.overwrite=true on the command line to replace it"
                raise RunError(line, key="run.dir", kind="taken")
            _clear(path)
        refuse_links(path)
        write_synced(path / "metrics.jsonl", b"")
        write_atomically(path / "recipe.yaml", recipe.to_yaml().encode())
        with suppress(PermissionError):  # a folder for all users need not be readable
            sync(path.parent)
        (path / NOTE).unlink(missing_ok=True)
        if store:
            write_atomically(path / NOTE, store.url.encode())
            store.begin(path)
        yield RunFolder(path, store, new=True)


def _clear(path: Path) -> None:
    """Remove only what a run wrote, except its lines: with these it remains a run's folder, and
    the same command continues."""
    here, place = Path.cwd(), path.resolve()
    if place == here or place in here.parents:
        raise RunError(f"run.dir: {path} is the current folder, so it is not overwritten")
    a_run = any((path / name).exists() for name in ("metrics.jsonl", "checkpoints"))
    if not a_run or not (path / "recipe.yaml").is_file():
        raise RunError(f"run.dir: {path} is not a run folder, so it is not overwritten")
    for name in WRITTEN:
        if (path / name).is_dir() and not (path / name).is_symlink():
            _remove_own(path / name)
        else:
            (path / name).unlink(missing_ok=True)
    left = sorted(
        str(p.relative_to(path))
        for p in [*path.iterdir(), *(p for name in WRITTEN for p in (path / name).glob("*"))]
        if not p.name.startswith(".") and p.name not in {*BEGUN, *WRITTEN}
    )
    if left:
        warnings.warn(f"run.dir: {path}: did not remove {', '.join(left)}", stacklevel=2)


def _remove_own(folder: Path) -> None:
    """Remove what a run wrote, and also the folder if it is then empty."""
    for path in folder.iterdir():
        if not any(fnmatch(path.name, pattern) for pattern in WITHIN):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def is_run(word: str) -> bool:
    """Whether a word is a run's folder or URL rather than key=value; the names of a sweep's runs
    also contain `=`."""
    is_key = "=" in word and "://" not in word.partition("=")[0]
    return not is_key or os.path.isfile(os.path.join(word, "recipe.yaml"))


def latest_run() -> str:
    """The run in `runs/` that was written to last, named on stderr: what RUN is by default."""
    lines = [p for p in Path("runs").glob("*/metrics.jsonl") if (p.parent / "recipe.yaml").exists()]
    if not lines:
        raise RunError("RUN: there is no run in runs/; give the folder of one")
    latest = str(max(lines, key=lambda path: path.stat().st_mtime_ns).parent)
    say(f"rlzoo: the latest run, {latest}")
    return latest


def saved_steps(place: Path, suffix: str = "") -> list[Path]:
    """The entries `step-N` plus the suffix in a folder, oldest first, complete or not."""
    saved = re.compile(rf"step-\d+{re.escape(suffix)}").fullmatch
    return sorted((p for p in place.glob("step-*") if saved(p.name)), key=step_of)


def step_of(saved: Path) -> int:
    """The number of steps after which it was saved."""
    return int(saved.stem.removeprefix("step-"))


def open_folder(path: str | Path, large: bool = True) -> RunFolder:
    """An existing run folder; raises RunError if it is not one. A URL gives a copy, if `large`
    with its weights."""
    path = copy_of(path, large)
    refuse_devices(path)
    if not (path / "recipe.yaml").is_file():
        if inside := sorted(path.glob("*/recipe.yaml")):
            one = f"give one of them, such as {inside[0].parent}, or use `rlzoo compare {path}`"
            raise RunError(f"{path} is a folder of runs ({len(inside)}); {one} to compare them")
        parent = path.parent if path.parent.is_dir() else Path("runs")
        runs = sorted(str(p.parent) for p in parent.glob("*/recipe.yaml"))[-5:]
        nearby = f" (runs there: {', '.join(runs)})" if runs else ""
        what = "it has no recipe.yaml; `rlzoo import` reads a run of another trainer"
        line = f"{path} is not a run folder: {what if path.exists() else 'no such folder'}{nearby}"
        raise RunError(line, key=str(path), kind="not-found")
    return RunFolder(path)


def taken_up(path: Path, url: str) -> RunFolder:
    """A run's folder, to continue in: as it is at the URL, where that is further. Raises RunError
    where it holds a link."""
    refuse_links(path)
    for name in WRITTEN:
        if not Path(name).suffix and (path / name).is_file():
            raise RunError(f"{path / name}: is a file, but a run needs a folder there; remove it")
    if not url:
        return RunFolder(path)
    store = open_store(url)
    store.take_up(path)
    write_atomically(path / NOTE, url.encode())
    return RunFolder(path, store)
