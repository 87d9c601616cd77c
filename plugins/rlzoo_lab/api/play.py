"""`rlzoo play`: the interactive page of the docs, as a file.  No torch here.

docs/playground makes the page, and tests compare its scripts with the zoo; the wheel has a copy.
"""

import argparse
import webbrowser
from pathlib import Path

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError
from rlzoo.runs.disk import write_atomically
from rlzoo_lab.view.written import Written

NAME, HOME = "play.html", '<a href="README.md">the docs of rlzoo</a>'
HERE = Path(__file__).resolve().parents[1]
PLACES = (HERE / "playground.html", HERE.parents[1] / "docs" / "playground.html")  # wheel, checkout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", "--out", action=Written, metavar="FILE", default=NAME, dest="out",
                        help=f"where to write the page; default: {NAME}")  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open it in a browser")


def run(arguments: argparse.Namespace) -> Result:
    place = Path(arguments.out)
    page = next(path for path in PLACES if path.is_file())
    try:
        text = page.read_text(encoding="utf-8").replace(HOME, "")  # it is not in docs/
        write_atomically(place, text.encode())
    except OSError as error:
        raise RlzooError(f"--html: cannot write {place}: {error.strerror}") from None
    opened = arguments.open and webbrowser.open(place.resolve().as_uri())
    lines = [str(place)] if opened else [f"{place}: open it in a browser"]
    return Result({"play": str(place), "opened": opened}, lambda _: lines)
