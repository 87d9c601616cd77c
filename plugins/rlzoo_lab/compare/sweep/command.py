"""`rlzoo sweep`: several runs, paired by seed, then compared.  No torch here."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from rlzoo.cli.verb import QUIET_HELP, WORDS_HELP, Result
from rlzoo.errors import ComponentError, RecipeError, Unfinished, disk_is_full, warn
from rlzoo.plugin.border import Bound, border
from rlzoo.plugin.registry import Zoo
from rlzoo.plugin.sketch import load_zoo_after
from rlzoo.runs.disk import refuse_links
from rlzoo.runs.lock import locked
from rlzoo_lab.compare.sweep.board import Board
from rlzoo_lab.compare.sweep.folder import bring, check_folder, write_index
from rlzoo_lab.compare.sweep.plan import Sweep, plan_sweep, try_words
from rlzoo_lab.compare.sweep.work import work
from rlzoo_lab.data.record import failure
from rlzoo_lab.data.words import read_options
from rlzoo_lab.view.blocks import Text
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.texts import Shown


def sort_words(on: list[str], words: list[str], zoo: Zoo) -> tuple[list[str], list[str]]:
    """The options of `--on NAME[:ADDRESS] option=value ...`; all other words belong to the
    recipe."""
    name, _, address = on[0].partition(":")
    options = zoo.executors[name].options
    mine = [w for w in on[1:] if w.partition("=")[0] in options]
    rest = [w for w in on[1:] if w not in mine]
    return [*mine, *([f"address={address}"] if address else [])], [*words, *rest]


def read_executor(on: list[str], options: list[str], zoo: Zoo) -> Bound:
    """The executor with its options; raises RlzooError if it cannot run here."""
    component = zoo.executors[on[0].partition(":")[0]]
    bound = Bound.of(component, component.check_options(read_options(options)))
    component.refuse(bound.options)
    return bound


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="key=value", help=WORDS_HELP)
    add(
        "--on",
        nargs="+",
        default=["local"],
        metavar="EXECUTOR",
        help=(
            "where to run: local (default), ray:HOST:PORT or slurm, followed by options such as "
            "minutes=60"
        ),
    )
    add("--quiet", action="store_true", help=QUIET_HELP)
    add_declared(parser, "rlzoo_lab.api.verbs:sweep")


def run(arguments: argparse.Namespace) -> Result:
    if arguments.jobs is not None and arguments.jobs < 1:
        raise RecipeError(f"--jobs: must be at least 1. Got {arguments.jobs}")
    if arguments.patience is not None:
        if not 0 < arguments.patience < float("inf"):
            raise RecipeError(f"--patience: must be more than 0 minutes. Got {arguments.patience}")
        arguments.on = [*arguments.on, f"patience={arguments.patience}"]
    on = " ".join(arguments.on).split()  # a Python caller gives one text
    from rlzoo.format.console import doing  # here: rich

    with doing("loading", arguments.quiet):
        zoo = load_zoo_after(
            lambda rough: try_words(sort_words(on, arguments.words, rough)[1], rough)
        )
    options, words = sort_words(on, arguments.words, zoo)
    executor = read_executor(on, options, zoo)
    sweep = plan_sweep(words, zoo, arguments.dir, arguments.store)
    refuse_links(sweep.path)
    bring(sweep)
    check_folder(sweep)
    from rlzoo_lab.compare.comparison import find_row  # here, and below: a typo needs no numpy
    from rlzoo_lab.compare.sweep.forecast import forecast

    if arguments.reference:
        find_row(arguments.reference, sweep.rows)  # not only after hours
    for line in forecast(sweep, bool(arguments.reference)):
        warn(line)
    again = f"run the same command again to continue with the missing runs in {sweep.path}"
    try:
        with locked(sweep.path):
            return _run(sweep, executor, arguments)
    except KeyboardInterrupt as stopped:
        error = Unfinished(f"{str(stopped) or 'interrupted'}; {again}")
        error.status = getattr(stopped, "status", error.status)
        raise error from None
    except OSError as error:
        if not disk_is_full(error):
            raise
        where = f"{error.filename}: " if error.filename else ""
        raise Unfinished(f"{where}no space left on device; free some space, then {again}") from None


def train_missing(
    sweep: Sweep, executor: Bound, arguments: argparse.Namespace, at_a_time: int | None = None
) -> None:
    """Do the runs that are not finished. The caller locks the folder."""
    from rlzoo.format.console import SafeConsole  # here: --help needs no rich

    write_index(sweep)
    missing = [job for job in sweep.jobs if not job.done]
    if missing:
        runs, label = executor({}), executor.component.label
        with border(label):
            jobs = min(at_a_time or int(runs.capacity(missing)), len(missing))
        quiet = getattr(arguments, "quiet", False)  # a retraining has no such option
        console = getattr(arguments, "console", None)
        console = console or SafeConsole(stderr=arguments.json, quiet=quiet)
        console.goes_on = True
        with Board(console, sweep, len(missing), jobs) as board, disk_errors(), border(label):
            runs.run(missing, work, board, sweep.path, jobs)
        bring(sweep)  # what ran on other machines


@contextmanager
def disk_errors() -> Iterator[None]:
    """An executor is not to blame for a full disk."""
    try:
        yield
    except ComponentError as error:
        if isinstance(error.__cause__, OSError) and disk_is_full(error.__cause__):
            raise error.__cause__ from None
        raise


def _run(sweep: Sweep, executor: Bound, arguments: argparse.Namespace) -> Result:
    from rlzoo_lab.compare.command import document, write_page
    from rlzoo_lab.compare.comparison import compare
    from rlzoo_lab.compare.tables import blocks

    train_missing(sweep, executor, arguments, arguments.jobs)
    failed = [job for job in sweep.jobs if not job.done]
    if len(failed) == len(sweep.jobs):
        reasons = {failure(job.path) or "the executor did not begin them" for job in failed}
        raise Unfinished(f"all {len(failed)} runs failed: {'; '.join(sorted(reasons))}")
    comparison = compare(
        [sweep.path], reference=arguments.reference, threshold=arguments.threshold, force=True
    )
    page = sweep.path / "report.html"
    write_page(comparison, page)
    shown = [*blocks(comparison), Text(f"report: {page}")]
    if comparison.pairs:
        shown.append(Text(f"all pairs: rlzoo compare {sweep.path} --details"))
    return Result(
        {"path": str(sweep.path), "report": str(page), **document(comparison)},
        Shown(shown),
        status=1 if failed else 0,
    )
