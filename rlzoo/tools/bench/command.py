"""`rlzoo bench`: what a step costs, in tokens per CPU second and per wall second, with peak memory.

Each case runs in a process of its own (`rlzoo.bench_cases`), one after the other; what stands in a
table is the median of its repeats. `--against` measures another checkout of rlzoo beside this one,
`--peer trl` TRL on the same model, prompts and reward.
"""

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from rlzoo import __version__
from rlzoo.errors import UsageError, nearest
from rlzoo.recipe.files import find_config, list_configs
from rlzoo.tools.bench.parts import OF_A_MODEL, PARTS
from rlzoo.tools.bench.runner import INSTALL, Bench, Row, Spec, _read, _tell, machine, with_ratios
from rlzoo.tools.verb import Result

WHOLE = "all"

RECIPES = "grpo,rloo,ppo_gae"  # the default of --recipes


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


def run(arguments: argparse.Namespace) -> Result:
    document = bench(arguments)

    def view(_: Any) -> Any:
        from rlzoo.tools.bench.tables import tables

        return tables(document)

    def write(path: Path) -> None:
        text = json.dumps(document, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")

    def plot(path: Path) -> None:
        from rlzoo.tools.bench.scaling import write_plot

        write_plot(document["rows"], path)

    failed = any("error" in row for row in document["rows"])
    return Result(document, view, status=int(failed), files={"out": write, "plot": plot})


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
    """The parts to measure; raises UsageError for what cannot be, before anything runs."""
    known = [*PARTS, WHOLE]
    for part in arguments.parts:
        if part not in known:
            raise UsageError(
                f"bench: no case {part!r}{nearest(part, known)} (there are: {', '.join(known)})"
            )
    for name in ("repeat", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1. Got {value}")
    everything = not arguments.parts or WHOLE in arguments.parts
    parts = [p for p in PARTS if everything or p in arguments.parts]
    if "step" not in parts and arguments.peer:
        raise UsageError(f"--peer {arguments.peer} measures steps. Got bench {' '.join(parts)}")
    if "scaling" not in parts and arguments.plot:
        raise UsageError(f"--plot draws `bench scaling`. Got bench {' '.join(parts)}")
    if arguments.against and not (Path(arguments.against) / "rlzoo" / "cli.py").is_file():
        raise UsageError(f"--against: {arguments.against} is no checkout of rlzoo")
    if arguments.peer and not arguments.peer_python and not importlib.util.find_spec("trl"):
        raise UsageError(
            f"--peer {arguments.peer}: it is not installed here; in an environment of its own "
            f"{INSTALL}, and name its Python by --peer-python"
        )
    for python in arguments.peer_python or ():
        if not Path(python).is_file():
            raise UsageError(f"--peer-python: no such file {python!r}")
    if arguments.plot and Path(arguments.plot).suffix not in (".svg", ".png"):
        raise UsageError(f"--plot: {arguments.plot!r} must end in .svg or .png")
    for name in ("plot", "out"):
        file = getattr(arguments, name)
        if file and not Path(file).parent.is_dir():
            raise UsageError(f"--{name}: {file!r} is to lie in a folder that does not exist")
    for name in arguments.recipes.split(","):
        if find_config("recipes", name) is None:
            hint = nearest(name, list_configs("recipes"))
            raise UsageError(f"--recipes: no recipe {name!r}{hint}")
    return parts


def workload_of(name: str) -> Spec:
    file = find_config("bench", name)
    if file is None:
        known = list_configs("bench")
        raise UsageError(
            f"--model: no workload {name!r}{nearest(name, known)} (there are: {', '.join(known)})"
        )
    return {"name": name, **_read(file)}
