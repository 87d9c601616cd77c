"""A benchmark's runner: runs each case in its own process and returns its result as a row."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlzoo.errors import UsageError

# Where a checkout has its cases -> their module; older checkouts have them elsewhere.
HERE = Path(__file__).resolve().parent
CASES = {
    "tests/benchmarks/bench": "bench.cases",
    "plugins/rlzoo_lab/bench": "rlzoo_lab.bench.cases",
    "rlzoo/tools/bench": "rlzoo.tools.bench.cases",
}
PEER = HERE / "peer_trl.py"
INSTALL = "pip install 'trl>=1.16' (the last version with PPO: trl==1.12.0)"

Spec = dict[str, Any]
# part, case, model, by; then medians, or an `error`. A part may add what distinguishes its rows:
# rows (of a peer's pass), processes, axis and x (of scaling).
Row = dict[str, Any]


def read_config(name: str) -> Spec | None:
    """The YAML file of that name here, or None."""
    file = HERE / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None


WORKLOADS = sorted(path.stem for path in (HERE / "workloads").glob("*.yaml"))


class Bench:
    """State shared by all cases of a benchmark: the libraries to measure and the models made so
    far.

    folder: where models and runs are written and where the processes run, so that no ./configs
        shadows that of a checkout.
    """

    def __init__(self, arguments: argparse.Namespace, folder: Path):
        self.folder = folder
        self.threads: int = arguments.threads
        self.recipes: list[str] = arguments.recipes.split(",")
        self.device: str = arguments.device
        self.peer: bool = arguments.peer is not None
        self.pythons: list[str] = arguments.peer_python or [sys.executable]
        self.settings = read_config("bench") or {}
        # By whom, and where their code is (None: what is installed).
        self.trees: dict[str, Path | None] = {"rlzoo": None}
        if arguments.against:
            self.trees["before"] = Path(arguments.against).resolve()
        self.models: dict[str, str] = {}

    def rows(self, name: Row, spec: Spec) -> Iterator[Row]:
        """One case, measured in each checkout."""
        for by in self.trees:
            yield {**name, **self.run(spec, by)}

    def run(self, spec: Spec, by: str = "rlzoo") -> Row:
        """One case with the code of a checkout; a failure is a row with its `error`."""
        spec = {"warmup": 0, "repeat": 1, "threads": self.threads, **spec}
        tree = self.trees[by]
        module = next(m for f, m in CASES.items() if tree is None or (tree / f).is_dir())
        command = [sys.executable, "-P", "-m", module, json.dumps(spec)]
        return {"by": by, **medians(self.ask(command, self.environment(by)))}

    def run_peer(self, spec: Spec) -> Row:
        """One case of TRL, in the first of the given Pythons that has the trainer."""
        # The path of this Python must not affect the other.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        lacks = []
        for python in self.pythons:
            row = medians(self.ask([python, "-P", str(PEER), json.dumps(spec)], environment))
            if "missing" not in row:
                by = f"trl {row['versions']['trl']}" if "versions" in row else "trl"
                return {"by": by, **row}
            lacks.append(f"{python} {row['missing']}")
        return {"by": "trl", "error": f"{'; '.join(lacks)}. {INSTALL}"}

    def environment(self, by: str) -> dict[str, str]:
        """The environment of a process that runs a checkout's code."""
        tree = self.trees[by]
        places = [HERE.parent]
        if tree:
            places = [tree, tree / "plugins", tree / "tests" / "benchmarks"]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}

    def ask(self, command: Sequence[str], environment: Mapping[str, str]) -> Row:
        """The last JSON object that a process prints, or its `error`."""
        began = time.perf_counter()
        done = self.start(command, environment)
        seconds = time.perf_counter() - began
        if why := fault(done):
            return {"error": why}
        told = json.loads(done.stdout.splitlines()[-1])
        for sample in told.get("samples", ()):
            sample.setdefault("wall", seconds)  # where the whole process is what is measured
        return {**told, "process_seconds": seconds}

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        more = {"OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1"}
        return subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env={**environment, **more}
        )

    def model_of(self, workload: Spec) -> str:
        """The folder of a workload's model, made on first use."""
        name = workload["name"]
        if name not in self.models:
            folder = str(self.folder / name)
            wanted = {k: workload[k] for k in ("architecture", "vocabulary", "ends")}
            made = self.run({"case": "model", "folder": folder, **wanted})
            if "error" in made:
                raise UsageError(f"bench: no model {name!r} could be made: {made['error']}")
            self.models[name] = folder
        return self.models[name]

    def variants(self, workload: Spec) -> Iterator[tuple[str, list[str], Spec | None]]:
        """How the recipes are measured: case, words, and the TRL equivalent."""
        usual: list[Spec] = [{"label": "", "words": [], "peer": None}]
        for recipe in self.recipes:
            for variant in self.settings["steps"].get(recipe, usual):
                words = self.words(workload, *variant["words"], recipe=recipe)
                yield f"{recipe} {variant['label']}".strip(), words, variant["peer"]

    def words(self, workload: Spec, *more: str, recipe: str | None = None) -> list[str]:
        """A recipe's words on a workload; the first recipe's, if none is named."""
        return [
            f"recipe={recipe or self.recipes[0]}",
            f"model.path={self.model_of(workload)}",
            "device=cpu",
            f"run.threads={self.threads}",
            *self.settings["words"],
            *workload["words"],
            *more,
        ]


def fault(done: subprocess.CompletedProcess) -> str:
    """The last error line of a failed process, or an empty string."""
    if done.returncode < 0:  # killed, for lack of memory or by a user
        return f"ended by signal {-done.returncode}"
    lines = (done.stderr or done.stdout).strip().splitlines() or ["no error message"]
    return lines[-1] if done.returncode else ""


def medians(told: Row) -> Row:
    """A case's result, with its samples reduced to medians."""
    samples = told.pop("samples", None)
    return {**told, **summary(samples)} if samples else told


def summary(samples: Sequence[Row]) -> Row:
    """Medians over repeats; rates are medians of rates, not quotients of medians."""
    median = statistics.median
    out: Row = {"tokens": median(s["tokens"] for s in samples), "repeat": len(samples)}
    for kind in ("cpu", "wall"):
        if all(s.get(kind) for s in samples):
            out[f"{kind}_seconds"] = median(s[kind] for s in samples)
            out[f"tokens_per_{kind}_second"] = median(s["tokens"] / s[kind] for s in samples)
    if "cpu_seconds" in out:
        out["cpu_range"] = [min(s["cpu"] for s in samples), max(s["cpu"] for s in samples)]
    names = dict.fromkeys(name for s in samples for name in s.get("phases", ()))
    if names:
        out["phases"] = {n: median(s["phases"].get(n, 0.0) for s in samples) for n in names}
    return out


def with_ratios(rows: list[Row]) -> list[Row]:
    """Adds to each row of another library how much faster rlzoo is on the same case, and rlzoo's
    share of that row's memory."""
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
