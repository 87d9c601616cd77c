"""`bench`: measures tokens per CPU second and per wall second, and peak memory.

The cases run one after the other, each in its own process; tables show the median of the repeats.
`--against` also measures another checkout of rlzoo, and `--peer trl` also measures TRL on the same
model, prompts and reward.
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.parts import OF_A_MODEL, PARTS
from bench.runner import CASES, INSTALL, WORKLOADS, Bench, Row, Spec, read_config, with_ratios
from bench.scaling import write_plot
from bench.tables import markdown, sections, tables
from rlzoo import __version__
from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, nearest
from rlzoo.recipe.files import find_config, list_configs
from rlzoo.runs.disk import write_atomically
from rlzoo_lab.view.written import Written

WHOLE = "all"
RECIPES = "grpo,rloo,ppo_gae"  # the default of --recipes
USUAL = "small"  # the default of --model, and of `gpu`:
SHAPES = {"cuda": "gpu-0.5b,gpu-1.5b", "cpu": "gpu-micro"}


def add_arguments(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add(
        "parts",
        nargs="*",
        metavar="CASE",
        help=f"{', '.join(PARTS)}; default or {WHOLE}: all but gpu",
    )
    add("--recipes", default=RECIPES, help="recipes for step and startup")
    add(
        "--model",
        help=f"workloads: {', '.join(WORKLOADS)}; default: {USUAL}",
    )
    add(
        "--device",
        default="cuda",
        help="device for the case gpu; cpu runs the same code with tiny shapes",
    )
    add(
        "--repeat",
        type=int,
        metavar="N",
        help="measured repeats of each case; default: set by the workload",
    )
    add("--threads", type=int, default=1, help="number of CPU threads for torch")
    add("--against", metavar="DIR", help="also measure another checkout of rlzoo")
    add("--peer", choices=["trl"], help="also measure steps in TRL")
    add(
        "--peer-python",
        action="append",
        metavar="PATH",
        help="a Python interpreter with TRL installed; repeatable",
    )
    add("--plot", action=Written, figures=True, suffixes=(".svg", ".png"), metavar="FILE",
        help="file for a plot of scaling: .svg or .png")  # fmt: skip
    add("--out", action=Written, metavar="FILE",
        help="write the JSON document to this file, and the tables next to it as .md")  # fmt: skip


def run(arguments: argparse.Namespace) -> Result:
    document = measure(arguments)

    def write(path: Path) -> None:
        text = json.dumps(document, indent=1, ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode())
        made = [
            f"## {title.capitalize()}\n\n{markdown(rows)}" for title, rows in sections(document)
        ]
        write_atomically(path.with_suffix(".md"), ("\n\n".join(made) + "\n").encode())

    failed = any("error" in row for row in document["rows"])
    return Result(
        document,
        lambda _: tables(document),
        status=int(failed),
        files={"out": write, "plot": partial(write_plot, document["rows"])},
    )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that is requested; returns the document that --json prints."""
    parts = parts_of(arguments)
    check(arguments, parts)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rlzoo-bench-") as folder:
        bench = Bench(arguments, Path(folder))
        for part in parts:
            workloads = workloads_of(arguments, part)
            for workload in workloads if part in OF_A_MODEL else workloads[:1]:
                model = {"model": workload["name"]} if part in OF_A_MODEL else {}
                for row in PARTS[part](bench, workload):
                    rows.append({"part": part, **model, **row})
                    _tell(rows[-1])
    return {
        "version": __version__,
        "machine": machine(),
        "threads": arguments.threads,
        "rows": with_ratios(rows),
    }


def workloads_of(arguments: argparse.Namespace, part: str) -> list[Spec]:
    """The workloads of a part, those requested or its own."""
    kind = arguments.device.partition(":")[0]
    names = arguments.model or (SHAPES.get(kind, USUAL) if part == "gpu" else USUAL)
    found = [workload_of(name) for name in names.split(",")]
    for workload in found:
        workload["repeat"] = arguments.repeat or workload["repeat"]
        if part == "gpu" and "long" not in workload:
            raise UsageError(f"--model: {workload['name']} has no `long`, which bench gpu needs")
    return found


def parts_of(arguments: argparse.Namespace) -> list[str]:
    known = [*PARTS, WHOLE]
    for part in arguments.parts:
        if part not in known:
            raise UsageError(
                f"bench: there is no case {part!r}{nearest(part, known)} (available: "
                f"{', '.join(known)})"
            )
    everything = not arguments.parts or WHOLE in arguments.parts
    return [p for p in PARTS if p in arguments.parts or (everything and p != "gpu")]


def check(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Raises UsageError for requests that cannot be measured, before anything runs."""
    for name in ("repeat", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1. Got {value}")
    for name in arguments.recipes.split(","):
        if find_config("recipes", name) is None:
            hint = nearest(name, list_configs("recipes"))
            raise UsageError(f"--recipes: there is no recipe {name!r}{hint}")
    tree = arguments.against
    if tree and not any((Path(tree) / folder).is_dir() for folder in CASES):
        raise UsageError(f"--against: {tree} is not a checkout of rlzoo with `bench`")
    if arguments.peer:
        _check_peer(arguments, parts)
    for part in parts:
        workloads_of(arguments, part)
    if "gpu" in parts:
        _check_device(arguments.device)
    for python in arguments.peer_python or ():
        if not Path(python).is_file():
            raise UsageError(f"--peer-python: there is no file {python!r}")
    if arguments.plot and "scaling" not in parts:
        raise UsageError(f"--plot requires `bench scaling`. Got bench {' '.join(parts)}")


def _check_device(name: str) -> None:
    import torch

    from rlzoo.accel.device import pick_device

    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(
            f"bench gpu: torch {torch.__version__} finds no CUDA device here; `bench gpu "
            "--device cpu` runs the same code on the CPU with tiny shapes"
        )
    pick_device(name, "--device")


def _check_peer(arguments: argparse.Namespace, parts: list[str]) -> None:
    option = f"--peer {arguments.peer}"
    if "step" not in parts:
        raise UsageError(f"{option} requires `bench step`. Got bench {' '.join(parts)}")
    if not arguments.peer_python and not importlib.util.find_spec("trl"):
        raise UsageError(
            f"{option}: TRL is not installed here; run {INSTALL} in a separate environment, "
            "and give its Python with --peer-python"
        )


def workload_of(name: str) -> Spec:
    workload = read_config(f"workloads/{name}")
    if workload is None:
        raise UsageError(
            f"--model: there is no workload {name!r}{nearest(name, WORKLOADS)} "
            f"(available: {', '.join(WORKLOADS)})"
        )
    return {"name": name, **workload}


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system()}


def _tell(row: Row) -> None:
    clock = "CPU" if "cpu_seconds" in row else "wall"
    seconds = row.get(f"{clock.lower()}_seconds", 0)
    what = row.get("error") or f"{seconds:.3g} {clock} s, {row['peak_mb']:.0f} MB"
    name = " ".join(filter(None, [row["part"], row.get("model"), row["case"], row["by"]]))
    print(f"{name}: {what}", file=sys.stderr)
