"""Run folders: what a run leaves behind, and the Python entry points `run` and `resume`."""

import json
import os
import shutil
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo.component import RlzooError
from rlzoo.recipe import Recipe, compose
from rlzoo.registry import Zoo, load_zoo


class RunError(RlzooError):
    """A run folder that exists already, or is none."""


@dataclass
class RunFolder:
    """`runs/<name>/`: recipe.yaml, metrics.jsonl, samples.jsonl, summary.json, checkpoints/,
    model/."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """One JSON object as one line; a kill leaves at most an unfinished last line."""
        with open(self.path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def sync(self, name: str) -> None:
        """A checkpoint must not be newer than the metrics on disk."""
        if (self.path / name).exists():
            with open(self.path / name, "rb") as file:
                os.fsync(file.fileno())

    def read(self, name: str) -> list[dict[str, Any]]:
        """All whole lines."""
        path = self.path / name
        if not path.exists():
            return []
        records = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:  # the line that a kill cut off
                break
        return records

    def rewind(self, name: str, step: int) -> None:
        """Forget lines after `step`: a resumed run writes them again."""
        from rlzoo.checkpoint import write_atomically

        kept = [r for r in self.read(name) if r["step"] <= step]
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept)
        write_atomically(self.path / name, lines.encode())

    def summary(self) -> dict[str, Any]:
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@dataclass
class Run:
    """A finished run: its folder, its metrics (an object per line), its summary."""

    path: Path
    metrics: list[dict[str, Any]] = field(repr=False)
    summary: dict[str, Any]


def create_folder(recipe: Recipe) -> RunFolder:
    """The recipe's run folder, new; raises RunError where it exists."""
    from rlzoo.checkpoint import write_atomically

    config = recipe.config
    if config.run.dir is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        base = Path("runs") / f"{recipe.name}-{config.task.name}-{stamp}"
        path, n = base, 1
        while path.exists():
            n += 1
            path = base.with_name(f"{base.name}-{n}")
    else:
        path = Path(config.run.dir)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if not config.run.overwrite:
            raise RunError(
                f"run.dir: {path} exists already; `rlzoo resume {path}` goes on with it, "
                "run.overwrite=true replaces it"
            )
        if not (path / "recipe.yaml").is_file():
            raise RunError(f"run.dir: {path} is no run folder, so it is not overwritten")
        shutil.rmtree(path)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / "recipe.yaml", recipe.to_yaml().encode())
    return RunFolder(path)


def open_folder(path: str | Path) -> RunFolder:
    """An existing run folder; raises RunError where it is none."""
    path = Path(path)
    if not (path / "recipe.yaml").is_file():
        what = "no such folder" if not path.exists() else "it has no recipe.yaml"
        raise RunError(f"{path} is no run folder: {what}{_nearby(path)}")
    return RunFolder(path)


def _nearby(path: Path) -> str:
    parent = path.parent if path.parent.is_dir() else Path("runs")
    runs = sorted(p.parent for p in parent.glob("*/recipe.yaml"))
    return f" (runs there: {', '.join(map(str, runs[-5:]))})" if runs else ""


def list_runs(folder: Path) -> list[RunFolder]:
    """Finished runs in `folder`, oldest first."""
    found = [p.parent for p in folder.glob("*/summary.json")]
    return [RunFolder(p) for p in sorted(found, key=lambda p: p.stat().st_mtime)]


def run(
    recipe: str, overrides: list[str] | None = None, *, zoo: Zoo | None = None, display: Any = None
) -> Run:
    """Train as `rlzoo run recipe=RECIPE OVERRIDES...` does.

    Raises RecipeError (before any model loads), RewardError, RunError.
    """
    zoo = zoo or load_zoo()
    composed = compose([f"recipe={recipe}", *(overrides or [])], zoo)
    return start(composed, zoo, display)


def start(recipe: Recipe, zoo: Zoo, display: Any = None) -> Run:
    """Train a composed recipe in a new run folder."""
    from rlzoo.plan import make_plan

    plan = make_plan(recipe, zoo)  # finds unmet needs before the folder is made
    from rlzoo.build import critic_folder
    from rlzoo.pretrained import pick_device, resolve_path
    from rlzoo.ranks import check_alike, open_ranks
    from rlzoo.stopping import refuse

    refuse(plan)
    resolve_path(recipe.config.model.path)  # as does a model or device that is none
    if plan.critic and (path := critic_folder(plan)):
        resolve_path(path, "critic.init")
    pick_device(recipe.config.device)
    ranks = open_ranks(recipe.config.device)
    check_alike(ranks, recipe.to_yaml())
    if ranks.first:
        for text in plan.warnings:
            warnings.warn(text, stacklevel=3)
    made = ranks.same(_attempt(create_folder, recipe) if ranks.first else None)
    if isinstance(made, RlzooError):
        raise made
    return _train(plan, made, display, ranks)


def _attempt(function: Any, *arguments: Any) -> Any:
    """What `function` returns, or the RlzooError that it raises: other ranks wait for either."""
    try:
        return function(*arguments)
    except RlzooError as error:
        return error


def resume(path: str | Path, *, zoo: Zoo | None = None, display: Any = None) -> Run:
    """Go on with an interrupted run from its last whole checkpoint."""
    from rlzoo.plan import make_plan

    folder = open_folder(path)
    zoo = zoo or load_zoo()
    recipe = compose([f"recipe={folder.path / 'recipe.yaml'}"], zoo)
    if folder.summary():
        raise RunError(f"{folder.path} is finished already; nothing to resume")
    from rlzoo.ranks import check_alike, open_ranks

    ranks = open_ranks(recipe.config.device)
    check_alike(ranks, recipe.to_yaml())
    return _train(make_plan(recipe, zoo), folder, display, ranks)


def _train(plan: Any, folder: RunFolder, display: Any, ranks: Any) -> Run:
    from rlzoo.live import Silent
    from rlzoo.train import train

    shown = display if display is not None and ranks.first else Silent()
    summary = train(plan, folder, shown, ranks)
    return Run(folder.path, folder.read("metrics.jsonl"), summary)
