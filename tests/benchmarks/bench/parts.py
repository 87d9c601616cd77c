"""The parts of a benchmark: the rows that each measures for a workload."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from bench.runner import Bench, Row, Spec, fault, summary
from bench.scaling import points
from rlzoo.plugin.registry import load_zoo
from rlzoo.runs.folder import RunFolder

VALUES = 200  # tokens whose log-probs `gpu` compares

# The command line's own start: no torch, so not through a case's process.
HELP = """
import contextlib, json, sys
from rlzoo.cli import main
with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
    main(["--help"])
from bench.common import cpu_seconds, peak_mb
print(json.dumps({"samples": [{"tokens": 0, "cpu": cpu_seconds()}], "peak_mb": peak_mb()}))
"""


def estimators(bench: Bench, workload: Spec) -> Iterator[Row]:
    sizes = {"rows": 256, "steps": 512, "warmup": 2, "repeat": 7}
    for name in load_zoo().estimators:
        yield from bench.rows({"case": name}, {"case": "estimator", "name": name, **sizes})


def head(bench: Bench, workload: Spec) -> Iterator[Row]:
    """On a model with one narrow layer, so that the head dominates. `trunk`: the cost of that
    layer."""
    architecture = {**workload["architecture"], "num_hidden_layers": 1, "intermediate_size": 16}
    narrow = {**workload, "name": f"{workload['name']}-head", "architecture": architecture}
    words = bench.words(narrow)
    sizes = {
        "rows": _number(words, "rollout.prompts") * _number(words, "rollout.samples"),
        "steps": _number(words, "rollout.max_new_tokens"),
    }
    spec = {"case": "head", "words": words, **sizes, **_times(workload)}
    yield from bench.rows({"case": "head"}, {**spec, "how": "score"})
    for how in ("plain", "trunk"):
        yield {"case": "head", **bench.run({**spec, "how": how}), "by": how}


def sampling(bench: Bench, workload: Spec) -> Iterator[Row]:
    spec = {"case": "sampling", "words": bench.words(workload), **_times(workload)}
    yield from bench.rows({"case": "sampling"}, spec)


def step(bench: Bench, workload: Spec) -> Iterator[Row]:
    texts: list[str] | None = None
    for case, words, peer in bench.variants(workload):
        spec = {"case": "step", "words": words, **_times(workload)}
        yield from bench.rows({"case": case}, spec)
        if not bench.peer or not peer:
            continue
        if texts is None:
            drawn = bench.run({**spec, "case": "prompts"})
            if "error" in drawn:
                yield {"case": case, "by": "trl", "error": drawn["error"]}
                return
            texts = drawn["prompts"]
        spec = {
            **peer,
            "settings": {**bench.settings["peer"], **peer["settings"]},
            "model": bench.model_of(workload),
            "prompts": texts,
            "samples": _number(words, "rollout.samples"),
            "max_new_tokens": _number(words, "rollout.max_new_tokens"),
            "steps": workload["warmup"] + workload["repeat"],
            "repeat": workload["repeat"],
            "threads": bench.threads,
        }
        for rows in workload["peer_rows"]:
            yield {"case": case, "rows": rows, **bench.run_peer({**spec, "rows": rows})}


def phases(bench: Bench, workload: Spec) -> Iterator[Row]:
    """Each phase of a step next to the time that its counted matrix products need at least."""
    for case, words, _ in bench.variants(workload):
        row = bench.run({"case": "phases", "words": words, **_times(workload)})
        if "error" in row:
            yield {"case": case, **row}
            return
        for phase, took in row["phases"].items():
            gflop = row["flop"].get(phase, 0) / 1e9
            yield {"case": f"{case}: {phase}", "by": row["by"], "cpu_seconds": took,
                   "peak_mb": row["peak_mb"], "gflop": gflop,
                   "bound": gflop / row["gflops"]}  # fmt: skip


def startup(bench: Bench, workload: Spec) -> Iterator[Row]:
    for by in bench.trees:
        command = [sys.executable, "-P", "-c", HELP]
        told = [bench.ask(command, bench.environment(by)) for _ in range(5)]
        row = next((t for t in told if "error" in t), None) or {
            **summary([s for t in told for s in t["samples"]]),
            "peak_mb": told[-1]["peak_mb"],
        }
        yield {"case": "rlzoo --help", "by": by, **row}
        for i, recipe in enumerate(bench.recipes):
            words = ["device=cpu", f"run.threads={bench.threads}"]
            folder = str(bench.folder / f"{by}-{i}")
            spec = {"case": "first_metric", "recipe": recipe, "words": words, "folder": folder}
            yield {"case": f"first metric, {recipe}", **bench.run(spec, by)}


def scaling(bench: Bench, workload: Spec) -> Iterator[Row]:
    times = {"warmup": 1, "repeat": min(workload["repeat"], 5)}
    for axis, value, made, words in points(workload):
        spec = {"case": "step", "words": bench.words(made, *words), **times}
        yield {"case": f"{axis}={value}", "x": value, "axis": axis, **bench.run(spec)}


def processes(bench: Bench, workload: Spec) -> Iterator[Row]:
    """Wall time with one process and with two: runs of a few steps with torchrun."""
    steps = workload["warmup"] + workload["repeat"] + 1
    budget = [f"train.steps={steps}", "eval.samples=4", "eval.every=0"]
    for case, words, _ in bench.variants(workload):
        alone = None
        for n in (1, 2):
            run = Path(tempfile.mkdtemp(dir=bench.folder)) / "run"
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
            command = [sys.executable, *(launcher if n > 1 else []), "-m", "rlzoo", "run"]
            done = bench.start([*command, *words, *budget, f"run.dir={run}"], os.environ)
            row: Row = {"case": case, "processes": n, "by": "rlzoo"}
            if why := fault(done):
                yield {**row, "error": why}
                break
            row |= between_steps(run, workload["warmup"])
            alone = alone or row["wall_seconds"]
            yield {**row, "wall_share": row["wall_seconds"] / alone if n > 1 else None}


def between_steps(run: Path, warmup: int) -> Row:
    """Medians over a run's steps, from the end of one to the end of the next, without the first
    ones."""
    folder = RunFolder(run)
    lines = [line for line in folder.lines("metrics.jsonl") if "perf/seconds" in line][warmup:]
    ends = [{"tokens": line["perf/tokens"], "wall": line["perf/seconds"]} for line in lines]
    samples = [{k: b[k] - a[k] for k in a} for a, b in pairwise(ends)]
    return {**summary(samples), "peak_mb": folder.summary()["peak_rss_mb"]}  # of the first


def gpu(bench: Bench, workload: Spec) -> Iterator[Row]:
    """Values, device limits, steps, and the head on long responses. Nothing is timed if values
    disagree."""
    more = {"device": bench.device, "warmup": workload["warmup"], "repeat": workload["repeat"]}
    words = [*bench.words(workload), f"device={bench.device}"]
    spec = {"case": "device", "words": words, **more}
    values = bench.run({**spec, "what": "values", "tokens": VALUES})
    yield {"case": f"values, {VALUES} tokens", **values}
    if "error" in values:
        return
    limits = bench.run({**spec, "what": "limits"})
    yield {"case": "copy and matrix product", **limits}
    if "error" in limits:
        return
    known = {"limits": {k: limits[k] for k in ("copy_gb_s", "matmul_tflops")}}
    for recipe in bench.settings["gpu"]:
        for variant in bench.settings["steps"][recipe]:
            asked = bench.words(workload, *variant["words"], recipe=recipe)
            asked.append(f"device={bench.device}")
            row = bench.run({**spec, **known, "what": "step", "words": asked})
            yield {"case": f"{recipe} {variant['label']}", **row}
    long = {"what": "head", "tokens": workload["long"]}
    yield {"case": f"head, {workload['long']:,} tokens", **bench.run({**spec, **known, **long})}


def _times(workload: Spec) -> Spec:
    return {k: workload[k] for k in ("warmup", "repeat")}


def _number(words: list[str], key: str) -> int:
    return int(next(w.partition("=")[2] for w in reversed(words) if w.partition("=")[0] == key))


PARTS: dict[str, Callable[[Bench, Spec], Iterator[Row]]] = {
    f.__name__: f
    for f in (estimators, head, sampling, step, phases, startup, scaling, processes, gpu)
}
OF_A_MODEL = ("head", "sampling", "step", "phases", "scaling", "processes", "gpu")
