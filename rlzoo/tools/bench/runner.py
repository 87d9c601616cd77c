import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlzoo.errors import UsageError
from rlzoo.recipe.files import find_config

HERE = Path(__file__).parent

INSTALL = "pip install 'trl>=1.16' (its last with PPO: trl==1.12.0)"


Spec = dict[str, Any]

Row = dict[str, Any]


def _read(file: Path) -> Spec:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _found(name: str) -> Path:
    file = find_config("", name)
    assert file is not None, name  # it ships
    return file


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system()}


# ---------------------------------------------------------------- running cases


class Bench:
    """What all cases of a benchmark share: who is measured, the models made so far."""

    folder: Path  # where models go

    def __init__(self, arguments: argparse.Namespace):
        self.threads: int = arguments.threads
        self.recipes: list[str] = arguments.recipes.split(",")
        self.peer: bool = arguments.peer is not None
        self.pythons: list[str] = arguments.peer_python or [sys.executable]
        self.settings = _read(_found("bench"))
        # By whom, and where their code lies (None: what is installed).
        self.ours: dict[str, str | None] = {"rlzoo": None}
        if arguments.against:
            self.ours["before"] = str(Path(arguments.against).resolve())
        self.models: dict[str, str] = {}

    def run(self, spec: Spec, by: str = "rlzoo") -> Row:
        """One case of rlzoo in a process of its own; a failure is a row with its `error`."""
        environment = dict(os.environ)
        tree = self.ours[by]
        if tree is not None:
            environment["PYTHONPATH"] = os.pathsep.join([tree, str(Path(tree) / "plugins")])
        spec = {"warmup": 0, "repeat": 1, "threads": self.threads, **spec}
        script = HERE / "cases.py"
        return {"by": by, **process(sys.executable, script, spec, environment, self.folder)}

    def run_peer(self, spec: Spec) -> Row:
        """One case of TRL, in the first of its Pythons that has the trainer."""
        # What this Python finds by its path is not the other's business.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        lacks = []
        for python in self.pythons:
            row = process(python, HERE / "peer_trl.py", spec, environment, self.folder)
            if "missing" not in row:
                by = f"trl {row['versions']['trl']}" if "versions" in row else "trl"
                return {"by": by, **row}
            lacks.append(f"{python} {row['missing']}")
        return {"by": "trl", "error": f"{'; '.join(lacks)}. {INSTALL}"}

    def model_of(self, workload: Spec) -> str:
        """The folder of a workload's model, made when first asked for."""
        name = workload["name"]
        if name not in self.models:
            folder = str(self.folder / name)
            wanted = {k: workload[k] for k in ("architecture", "vocabulary", "ends")}
            made = self.run({"case": "model", "folder": folder, **wanted})
            if "error" in made:
                raise UsageError(f"bench: no model {name!r} could be made: {made['error']}")
            self.models[name] = folder
        return self.models[name]

    def variants(self, recipe: str) -> list[Spec]:
        """How a recipe is measured: label, words, what is the same in TRL."""
        return self.settings["steps"].get(recipe, [{"label": "", "words": [], "peer": None}])

    def words(self, workload: Spec, *more: str) -> list[str]:
        """A recipe's words on a workload, but for the recipe."""
        return [
            f"model.path={self.model_of(workload)}",
            "device=cpu",
            f"run.threads={self.threads}",
            *self.settings["words"],
            *workload["words"],
            *more,
        ]


def process(
    python: str, script: Path, spec: Spec, environment: dict[str, str], folder: Path
) -> Row:
    """What a script says of a case, as a row of medians. It runs in `folder`, where no ./configs
    shadows a checkout's own."""
    environment = {**environment, "OMP_NUM_THREADS": str(spec["threads"]), "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-P", str(script), json.dumps(spec)],  # -P: what lies beside it is not in the way
        capture_output=True, text=True,
        env=environment, cwd=folder,
    )  # fmt: skip
    if done.returncode:
        if done.returncode < 0:  # killed, for want of memory or by somebody
            return {"error": f"ended by signal {-done.returncode}"}
        return {"error": (done.stderr.strip().splitlines() or ["no word of why"])[-1]}
    found = json.loads(done.stdout.splitlines()[-1])
    found["process_seconds"] = time.perf_counter() - began
    samples = found.pop("samples", [])
    return {**found, **(summary(samples) if samples else {})}


def summary(samples: Sequence[Row]) -> Row:
    """Medians over repeats; rates are medians of rates, not quotients of medians."""

    def median(values: Iterator[float]) -> float:
        return statistics.median(list(values))

    out: Row = {
        "tokens": median(s["tokens"] for s in samples),
        "cpu_seconds": median(s["cpu"] for s in samples),
        "cpu_range": [min(s["cpu"] for s in samples), max(s["cpu"] for s in samples)],
        "repeat": len(samples),
    }
    for kind in ("cpu", "wall"):
        if all(s.get(kind) for s in samples):
            out[f"{kind}_seconds"] = median(s[kind] for s in samples)
            out[f"tokens_per_{kind}_second"] = median(s["tokens"] / s[kind] for s in samples)
    names = dict.fromkeys(name for s in samples for name in s.get("phases", ()))
    if names:
        out["phases"] = {n: median(s["phases"].get(n, 0.0) for s in samples) for n in names}
    return out


def with_ratios(rows: list[Row]) -> list[Row]:
    """Each row of somebody else's, with how much faster rlzoo is on the same case, and what share
    of that one's memory it takes."""
    mine = {_key(row): row for row in rows if row["by"] == "rlzoo"}
    out = []
    for row in rows:
        ours = mine.get(_key(row))
        if row["by"] != "rlzoo" and ours and "tokens" in row and "tokens" in ours:
            rate = "tokens_per_cpu_second"
            times = ours[rate] / row[rate] if row.get(rate) else None
            row = {**row, "times_faster": times, "memory_share": ours["peak_mb"] / row["peak_mb"]}
        out.append(row)
    return out


def _key(row: Row) -> tuple:
    return row["part"], row.get("model"), row["case"]


def _tell(row: Row) -> None:
    clock = "CPU" if "cpu_seconds" in row else "wall"
    seconds = row.get(f"{clock.lower()}_seconds", 0)
    what = row.get("error") or f"{seconds:.3g} {clock} s, {row['peak_mb']:.0f} MB"
    name = " ".join(filter(None, [row["part"], row.get("model"), row["case"], row["by"]]))
    print(f"{name}: {what}", file=sys.stderr)
