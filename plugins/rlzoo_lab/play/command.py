"""`rlzoo play`: writes the page.  No torch at the top."""

import argparse
import webbrowser
from pathlib import Path

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError
from rlzoo.plugin.registry import load_zoo
from rlzoo.runs.disk import write_atomically
from rlzoo_lab.play.page import page
from rlzoo_lab.view.written import Written

NAME = "play.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", action=Written, metavar="FILE", default=NAME,
                        help=f"where to write the page; default: {NAME}")  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open it in a browser")


def run(arguments: argparse.Namespace) -> Result:
    place = Path(arguments.out)
    try:
        write_atomically(place, page(load_zoo()).encode("utf-8"))
    except OSError as error:
        raise RlzooError(f"--out: cannot write {place}: {error.strerror}") from None
    opened = arguments.open and webbrowser.open(place.resolve().as_uri())
    lines = [str(place)] if opened else [f"{place}: open it in a browser"]
    return Result({"play": str(place), "opened": opened}, lambda _: lines)
