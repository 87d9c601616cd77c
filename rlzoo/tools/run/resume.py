"""`rlzoo resume`: goes on with an interrupted run from its last checkpoint."""

import argparse

from rlzoo.tools.run.command import shown
from rlzoo.tools.verb import Result
from rlzoo.train.start import resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="RUN")


def run(arguments: argparse.Namespace) -> Result:
    return shown(lambda display: resume(arguments.path, display=display), arguments)
