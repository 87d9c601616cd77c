"""`rlzoo report`: a page about a run. No torch here."""

import argparse
import time
import webbrowser
from pathlib import Path

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, UsageError
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.folder import RunFolder, latest_run, open_folder
from rlzoo_lab.doctor.report.html import Report, page, read_report
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.written import Written

NAME = "report.html"


def write(folder: RunFolder, out: str | Path | None, refresh: float | None) -> tuple[Path, Report]:
    """The page for a run in its current state: its path and its text. refresh: seconds after which
    a browser reloads it while the run trains."""
    place = folder.path / NAME if out is None else Path(out)
    try:
        shown = read_report(folder)
    except OSError as error:
        raise RlzooError(f"{folder.path}: cannot be read: {error}") from None
    text = page(shown, refresh if shown.state == "running" else None)
    try:
        write_atomically(place, text.encode("utf-8"))
    except OSError as error:
        raise RlzooError(f"--out: cannot write {place}: {error.strerror}") from None
    return place, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="RUN", nargs="?", help="a run folder; the run may still be training")
    add("--out", action=Written, metavar="FILE",
        help=f"where to write the page; default: RUN/{NAME}")  # fmt: skip
    add("--open", action="store_true", help="open it in a browser")
    again = "while the run trains, rewrite the page every N seconds (default 10)"
    add("--watch", metavar="SECONDS", nargs="?", type=float, const=10.0, help=again)
    add_declared(parser, "rlzoo_lab.api.verbs:report")


def run(arguments: argparse.Namespace) -> Result:
    every = arguments.watch
    if every is not None and not 1 <= every < 1e6:
        raise UsageError(f"--watch: must be at least 1 second. Got {every:g}")
    folder = open_folder(arguments.path or latest_run(), large=False)
    place, shown = write(folder, arguments.out, every)
    told = every is None
    try:
        while every is not None and shown.state == "running":
            if not told and not arguments.json:
                print(f"{place}: written every {every:g} s while the run trains", flush=True)
                told = True
            time.sleep(every)
            place, shown = write(folder, arguments.out, every)
    except KeyboardInterrupt:
        place, shown = write(folder, arguments.out, None)  # a page that does not wait for the next
    if arguments.open:
        webbrowser.open(place.resolve().as_uri())
    document = {
        "path": str(folder.path), "report": str(place), "state": shown.state, "step": shown.step,
        "batches": list(shown.groups),
        "remarks": [{"rule": f.rule, "severity": f.severity} for f in shown.findings],
    }  # fmt: skip
    lines = [f"{place} (step {shown.step}, {shown.state})"]
    if shown.state == "running":
        lines.append(
            f"the run is still training; `rlzoo report {folder.path} --watch` keeps the page up "
            "to date"
        )
    whose = folder.summary().get("imported") or {}
    if not shown.groups:
        lines.append(
            f"imported from {whose['from']}, without tokens" if whose else
            "the run saved no batches; with run.save_batches=1, the page also shows groups and "
            "tokens"
        )  # fmt: skip
    return Result(document, lambda _: lines)
