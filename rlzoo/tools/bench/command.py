"""`rlzoo bench`: what a step costs, in tokens per CPU second and per wall second, with peak memory.

Each case runs in a process of its own (`rlzoo.bench_cases`), one after the other; what stands in a
table is the median of its repeats. `--against` measures another checkout of rlzoo beside this one,
`--peer trl` TRL on the same model, prompts and reward.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlzoo import __version__
from rlzoo.columns import nearest
from rlzoo.component import RlzooError
from rlzoo.recipe import find_config, list_configs

HERE = Path(__file__).parent
WHOLE = "all"
RECIPES = "grpo,rloo,ppo_gae"  # the default of --recipes
INSTALL = "pip install 'trl>=1.16' (its last with PPO: trl==1.12.0)"

Spec = dict[str, Any]
Row = dict[str, Any]


class BenchError(RlzooError):
    """A benchmark that was asked for and cannot be."""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("parts", nargs="*", metavar="CASE", help=f"{', '.join(PARTS)}; none or {WHOLE}: all")
    add("--recipes", default=RECIPES, help="of step and startup")
    add("--model", default="small", help=f"of configs/bench: {', '.join(list_configs('bench'))}")
    add("--repeat", type=int, metavar="N", help="measured repeats of a case; the workload's own")
    add("--threads", type=int, default=1, help="CPU threads of torch")
    add("--against", metavar="DIR", help="another checkout of rlzoo, measured beside this one")
    add("--peer", choices=["trl"], help="measure steps in TRL as well")
    add("--peer-python", action="append", metavar="PATH", help="a Python that has it; repeatable")
    add("--plot", metavar="FILE", help="of scaling: .svg or .png")
    add("--out", metavar="FILE", help="write the JSON document there, too")


def command(arguments: argparse.Namespace) -> int:
    document = bench(arguments)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")
    if arguments.plot:
        from rlzoo.bench_scaling import write_plot

        write_plot(document["rows"], Path(arguments.plot))
    if arguments.json:
        print(text)
    else:
        from rich.console import Console

        from rlzoo.bench_tables import tables

        console = Console()
        for table in tables(document):
            console.print(table)
    return 1 if any("error" in row for row in document["rows"]) else 0


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that is asked for, measured: the document that --json prints."""
    parts = parts_of(arguments)
    workloads = [workload_of(name) for name in arguments.model.split(",")]
    if arguments.repeat is not None:
        for workload in workloads:
            workload["repeat"] = arguments.repeat
    bench = Bench(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rlzoo-bench-") as folder:
        bench.folder = Path(folder)
        for part in parts:
            for workload in workloads if part in OF_A_MODEL else workloads[:1]:
                for row in PARTS[part](bench, workload):
                    rows.append({"part": part, **row})
                    _tell(rows[-1])
    return {
        "version": __version__,
        "machine": machine(),
        "threads": arguments.threads,
        "rows": with_ratios(rows),
    }


def parts_of(arguments: argparse.Namespace) -> list[str]:
    """The parts to measure; raises BenchError for what cannot be, before anything runs."""
    known = [*PARTS, WHOLE]
    for part in arguments.parts:
        if part not in known:
            raise BenchError(
                f"bench: no case {part!r}{nearest(part, known)} (there are: {', '.join(known)})"
            )
    for name in ("repeat", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise BenchError(f"--{name} must be at least 1. Got {value}")
    everything = not arguments.parts or WHOLE in arguments.parts
    parts = [p for p in PARTS if everything or p in arguments.parts]
    if "step" not in parts and arguments.peer:
        raise BenchError(f"--peer {arguments.peer} measures steps. Got bench {' '.join(parts)}")
    if "scaling" not in parts and arguments.plot:
        raise BenchError(f"--plot draws `bench scaling`. Got bench {' '.join(parts)}")
    if arguments.against and not (Path(arguments.against) / "rlzoo" / "train.py").is_file():
        raise BenchError(f"--against: {arguments.against} is no checkout of rlzoo")
    if arguments.peer and not arguments.peer_python and not importlib.util.find_spec("trl"):
        raise BenchError(
            f"--peer {arguments.peer}: it is not installed here; in an environment of its own "
            f"{INSTALL}, and name its Python by --peer-python"
        )
    for python in arguments.peer_python or ():
        if not Path(python).is_file():
            raise BenchError(f"--peer-python: no such file {python!r}")
    if arguments.plot and Path(arguments.plot).suffix not in (".svg", ".png"):
        raise BenchError(f"--plot: {arguments.plot!r} must end in .svg or .png")
    for name in ("plot", "out"):
        file = getattr(arguments, name)
        if file and not Path(file).parent.is_dir():
            raise BenchError(f"--{name}: {file!r} is to lie in a folder that does not exist")
    for name in arguments.recipes.split(","):
        if find_config("recipes", name) is None:
            hint = nearest(name, list_configs("recipes"))
            raise BenchError(f"--recipes: no recipe {name!r}{hint}")
    return parts


def workload_of(name: str) -> Spec:
    file = find_config("bench", name)
    if file is None:
        known = list_configs("bench")
        raise BenchError(
            f"--model: no workload {name!r}{nearest(name, known)} (there are: {', '.join(known)})"
        )
    return {"name": name, **_read(file)}


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
        script = HERE / "bench_cases.py"
        return {"by": by, **process(sys.executable, script, spec, environment, self.folder)}

    def run_peer(self, spec: Spec) -> Row:
        """One case of TRL, in the first of its Pythons that has the trainer."""
        # What this Python finds by its path is not the other's business.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        lacks = []
        for python in self.pythons:
            row = process(python, HERE / "bench_peer_trl.py", spec, environment, self.folder)
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
                raise BenchError(f"bench: no model {name!r} could be made: {made['error']}")
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


# ---------------------------------------------------------------- parts


def bench_step(bench: Bench, workload: Spec) -> Iterator[Row]:
    times = {k: workload[k] for k in ("warmup", "repeat")}
    steps = times["warmup"] + times["repeat"]
    texts: list[str] | None = None
    for recipe in bench.recipes:
        for variant in bench.variants(recipe):
            name = {"case": f"{recipe} {variant['label']}".strip(), "model": workload["name"]}
            words = [f"recipe={recipe}", *bench.words(workload, *variant["words"])]
            for by in bench.ours:
                yield {**name, **bench.run({"case": "step", "words": words, **times}, by)}
            if not bench.peer or not variant["peer"]:
                continue
            if texts is None:
                drawn = bench.run({"case": "prompts", "words": words, **times})
                if "error" in drawn:
                    yield {**name, "by": "trl", "error": drawn["error"]}
                    return
                texts = drawn["prompts"]
            for rows in workload["peer_rows"]:
                spec = {
                    **variant["peer"],
                    "settings": {**bench.settings["peer"], **variant["peer"]["settings"]},
                    "model": bench.model_of(workload),
                    "prompts": texts,
                    "samples": int(_value(words, "rollout.samples")),
                    "max_new_tokens": int(_value(words, "rollout.max_new_tokens")),
                    "rows": rows,
                    "steps": steps,
                    "repeat": times["repeat"],
                    "threads": bench.threads,
                }
                yield {**name, "rows": rows, **bench.run_peer(spec)}


def _value(words: list[str], key: str) -> str:
    return next(w.partition("=")[2] for w in reversed(words) if w.partition("=")[0] == key)


def bench_sampling(bench: Bench, workload: Spec) -> Iterator[Row]:
    words = ["recipe=" + bench.recipes[0], *bench.words(workload)]
    times = {k: workload[k] for k in ("warmup", "repeat")}
    for by in bench.ours:
        row = bench.run({"case": "sampling", "words": words, **times}, by)
        yield {"case": "sampling", "model": workload["name"], **row}


def bench_head(bench: Bench, workload: Spec) -> Iterator[Row]:
    """On a model of one narrow layer: what is left is the head. `trunk`: what that layer takes."""
    architecture = {**workload["architecture"], "num_hidden_layers": 1, "intermediate_size": 16}
    narrow = {**workload, "name": f"{workload['name']}-head", "architecture": architecture}
    words = bench.words(workload)
    steps = int(_value(words, "rollout.max_new_tokens"))
    rows = int(_value(words, "rollout.prompts")) * int(_value(words, "rollout.samples"))
    spec = {
        "case": "head",
        "words": ["recipe=" + bench.recipes[0], *bench.words(narrow)],
        "rows": rows,
        "steps": steps,
        "warmup": workload["warmup"],
        "repeat": workload["repeat"],
    }
    name = {"case": "head", "model": workload["name"]}
    for by in bench.ours:
        yield {**name, **bench.run({**spec, "how": "score"}, by)}
    for how in ("plain", "trunk"):
        yield {**name, **bench.run({**spec, "how": how}), "by": how}


def bench_estimators(bench: Bench, workload: Spec) -> Iterator[Row]:
    from rlzoo.registry import load_zoo

    for name in load_zoo().estimators:
        spec = {"case": "estimator", "name": name, "rows": 256, "steps": 512, "warmup": 2,
                "repeat": 7}  # fmt: skip
        for by in bench.ours:
            yield {"case": name, **bench.run(spec, by)}


def bench_startup(bench: Bench, workload: Spec) -> Iterator[Row]:
    for by in bench.ours:
        yield {"case": "rlzoo --help", "by": by, **_help(bench, by)}
        for i, recipe in enumerate(bench.recipes):
            words = ["device=cpu", f"run.threads={bench.threads}"]
            folder = str(bench.folder / f"{by}-{i}")
            spec = {"case": "first_metric", "recipe": recipe, "words": words, "folder": folder}
            row = bench.run(spec, by)
            row["wall_seconds"] = row.get("process_seconds")
            yield {"case": f"first metric, {recipe}", **row}


def _help(bench: Bench, by: str) -> Row:
    """The command line's own start: no torch, so not through a case's process."""
    code = (
        "import json, resource, runpy, sys\n"
        "sys.path[:0] = json.loads(sys.argv.pop())\n"
        "out, sys.stdout = sys.stdout, sys.stderr\n"
        "from rlzoo.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "use = resource.getrusage(resource.RUSAGE_SELF)\n"
        "peak = runpy.run_path(sys.argv.pop())['peak_mb']()\n"
        "print(json.dumps([use.ru_utime + use.ru_stime, peak]), file=out)\n"
    )
    tree = bench.ours[by]
    path = json.dumps([] if tree is None else [tree, str(Path(tree) / "plugins")])
    # The last argument first: `code` takes them off the end.
    asked = [sys.executable, "-c", code, str(HERE / "bench_peer_trl.py"), path]
    samples, peak = [], 0.0
    for _ in range(5):
        began = time.perf_counter()
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
        cpu, peak = json.loads(done.stdout)
        samples.append({"tokens": 0, "cpu": cpu, "wall": time.perf_counter() - began})
    return {**summary(samples), "peak_mb": peak}


def bench_scaling(bench: Bench, workload: Spec) -> Iterator[Row]:
    from rlzoo.bench_scaling import cases

    for name, value, made, words in cases(workload):
        spec = {
            "case": "step",
            "words": ["recipe=" + bench.recipes[0], *bench.words(made, *words)],
            "warmup": 1,
            "repeat": min(workload["repeat"], 5),
        }
        point = {"case": f"{name}={value}", "x": value, "axis": name, "model": workload["name"]}
        yield {**point, **bench.run(spec)}


def bench_processes(bench: Bench, workload: Spec) -> Iterator[Row]:
    from rlzoo.bench_processes import measure

    for recipe in bench.recipes:
        for variant in bench.variants(recipe):
            case = f"{recipe} {variant['label']}".strip()
            words = [f"recipe={recipe}", *bench.words(workload, *variant["words"])]
            for row in measure(words, workload, bench.threads, bench.folder):
                yield {"case": case, "model": workload["name"], **row}


PARTS = {
    "estimators": bench_estimators,
    "head": bench_head,
    "sampling": bench_sampling,
    "step": bench_step,
    "startup": bench_startup,
    "scaling": bench_scaling,
    "processes": bench_processes,
}
OF_A_MODEL = ("head", "sampling", "step", "scaling", "processes")
