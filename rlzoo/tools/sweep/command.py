"""`rlzoo sweep`: several runs, paired by seed, then compared.  No torch here."""

import argparse
import os
import re
import warnings
from functools import partial
from pathlib import Path

from rlzoo.errors import RecipeError, Unfinished
from rlzoo.plugin.sketch import load_zoo_after
from rlzoo.runs.disk import disk_is_full
from rlzoo.runs.lock import locked
from rlzoo.runs.record import failure
from rlzoo.tools.compare.command import document
from rlzoo.tools.compare.comparison import compare, find_row
from rlzoo.tools.sweep.folder import check_folder, write_index
from rlzoo.tools.sweep.forecast import forecast
from rlzoo.tools.sweep.plan import Sweep, plan_sweep, try_words
from rlzoo.tools.sweep.workers import run_all
from rlzoo.tools.verb import WORDS_HELP, Result


def default_jobs(sweep: Sweep, runs: int) -> int:
    """As many as there are cores, and as fit into memory; one per GPU where there are GPUs."""
    from rlzoo.lm.loading import resolve_path
    from rlzoo.parallel.device import pick_device

    config = sweep.rows[0].recipe.config
    if pick_device(config.device).type == "cuda":
        import torch

        return min(runs, torch.cuda.device_count() if config.device in ("auto", "cuda") else 1)
    weights = sum(f.stat().st_size for f in resolve_path(config.model.path).glob("*.safetensors"))
    # Actor, critic, reference, gradients, two Adam moments each, activations; and torch itself.
    need = 600e6 + 24 * weights
    return max(1, min(runs, _cores(), int(_free_memory() / need)))


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        return max(1, min(cores or 1, round(int(quota[0]) / int(quota[1]))))
    return cores or 1


def _free_memory() -> float:
    available = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
    free = int(available[1]) * 1024.0 if available else float("inf")
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if limit.strip().isdigit() and used.strip().isdigit():
        free = min(free, float(int(limit) - int(used)))
    return free


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="+", metavar="key=value", help=WORDS_HELP)
    add("--jobs", type=int, metavar="N", help="runs at a time; default: by cores and memory")
    add("--dir", metavar="DIR", help="the sweep's folder; default: runs/sweep-...")
    add(
        "--patience",
        type=float,
        default=30.0,
        metavar="MINUTES",
        help="a run without a step for so long is taken up by another worker; default: 30",
    )
    add("--reference", metavar="ROW", help="the row to compare with")
    add("--threshold", type=float, metavar="X", help="score to count steps to")


def run(arguments: argparse.Namespace) -> Result:
    if arguments.jobs is not None and arguments.jobs < 1:
        raise RecipeError(f"--jobs: must be at least 1. Got {arguments.jobs}")
    if not 0 < arguments.patience < float("inf"):
        raise RecipeError(f"--patience: must be minutes over 0. Got {arguments.patience}")
    zoo = load_zoo_after(partial(try_words, arguments.words))
    sweep = plan_sweep(arguments.words, zoo, arguments.dir)
    check_folder(sweep)
    if arguments.reference:
        find_row(arguments.reference, sweep.rows)  # not only after hours
    for line in forecast(sweep, bool(arguments.reference)):
        warnings.warn(line, stacklevel=2)
    again = f"the same command goes on with what is missing in {sweep.path}"
    try:
        with locked(sweep.path):
            return _run(sweep, arguments)
    except KeyboardInterrupt:
        raise Unfinished(f"interrupted; {again}") from None
    except OSError as error:
        if not disk_is_full(error):
            raise
        where = f"{error.filename}: " if error.filename else ""
        raise Unfinished(f"{where}no space left on device; free some space: {again}") from None


def _run(sweep: Sweep, arguments: argparse.Namespace) -> Result:
    from rlzoo.show.console import SafeConsole  # here, and below: --help needs no rich
    from rlzoo.tools.compare.html import write_report
    from rlzoo.tools.compare.tables import view
    from rlzoo.tools.sweep.board import make_board

    write_index(sweep)
    missing = [job for job in sweep.jobs if not job.done]
    if missing:
        jobs = min(arguments.jobs or default_jobs(sweep, len(missing)), len(missing))
        console = getattr(arguments, "console", None) or SafeConsole(stderr=arguments.json)
        with make_board(console, sweep, len(missing), jobs) as board:
            run_all(missing, jobs, sweep.path, board, 60 * arguments.patience)
    failed = [job for job in sweep.jobs if not job.done]
    if len(failed) == len(sweep.jobs):
        reasons = {failure(job.path) for job in failed}
        raise Unfinished(f"all {len(failed)} runs failed: {'; '.join(sorted(reasons))}")
    comparison = compare(
        [sweep.path], reference=arguments.reference, threshold=arguments.threshold, force=True
    )
    report = sweep.path / "report.html"
    write_report(comparison, report)
    return Result(
        {"path": str(sweep.path), "report": str(report), **document(comparison)},
        lambda console: [
            *view(comparison, console.width),
            f"every pair: rlzoo compare {sweep.path} --details; report: {report}",
        ],
        status=1 if failed else 0,
    )
