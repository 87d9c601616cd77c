import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rlzoo.tools.bench.runner import HERE, Bench, Row, Spec, summary

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
    from rlzoo.plugin.registry import load_zoo

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
    from rlzoo.tools.bench.scaling import cases

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
    from rlzoo.tools.bench.processes import measure

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
