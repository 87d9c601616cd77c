"""`rlzoo resume`: continues an interrupted run from its last checkpoint."""

import argparse

from rlzoo.cli.run.command import shown
from rlzoo.cli.verb import Result
from rlzoo.train.start import resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="RUN", help="a run's folder, or the URL it is kept at")
    where = "the folder in which the run of a URL continues; default: runs/ and its name"
    parser.add_argument("--dir", metavar="DIR", help=where)
    kept = "the URL that keeps a copy of the run, from now on too"
    parser.add_argument("--store", metavar="URL", help=kept)
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code that comes with the model"
    )


def run(arguments: argparse.Namespace) -> Result:
    names = ("dir", "store", "trust_remote_code")
    told = {name: getattr(arguments, name) for name in names}
    return shown(lambda display: resume(arguments.path, display=display, **told), arguments)
