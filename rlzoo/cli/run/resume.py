"""`rlzoo resume`: continues an interrupted run from its last checkpoint."""

import argparse

from rlzoo.cli.run.command import shown
from rlzoo.cli.verb import Result
from rlzoo.train.start import resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="RUN", help="a run's folder, or the URL of its store")
    where = "the folder in which to continue a run from a URL; default: the run's name under runs/"
    parser.add_argument("--dir", metavar="DIR", help=where)
    kept = "also copy the run to this URL from now on"
    parser.add_argument("--store", metavar="URL", help=kept)
    parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own code")


def run(arguments: argparse.Namespace) -> Result:
    names = ("dir", "store", "trust_remote_code")
    options = {name: getattr(arguments, name) for name in names}
    return shown(lambda display: resume(arguments.path, display=display, **options), arguments)
