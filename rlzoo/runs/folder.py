"""A run's folder: what it holds, how it is made and found again."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo.errors import RunError, first_line
from rlzoo.recipe.compose import Recipe
from rlzoo.runs.disk import sync, write_atomically


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
            sync(self.path / name)

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
        kept = [r for r in self.read(name) if r["step"] <= step]
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept)
        write_atomically(self.path / name, lines.encode())

    def summary(self) -> dict[str, Any]:
        """Empty while the run is not finished; raises RunError where it is damaged."""
        path = self.path / "summary.json"
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{path} cannot be read: {first_line(error)}") from None
        if not isinstance(found, dict):
            raise RunError(f"{path} cannot be read: it holds no mapping")
        return found


def create_folder(recipe: Recipe) -> RunFolder:
    """The recipe's run folder, new; raises RunError where it exists."""
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
    finished = [p.parent for p in folder.glob("*/summary.json")]
    return [RunFolder(p) for p in sorted(finished, key=lambda p: p.stat().st_mtime)]
