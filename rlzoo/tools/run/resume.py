"""`rlzoo resume`: goes on with an interrupted run from its last checkpoint."""

import argparse
from typing import Any

from rlzoo.tools.run.command import shown
from rlzoo.tools.verb import Result
from rlzoo.train.start import Run, resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="RUN", help="a run's folder, or the URL it is kept at")
    where = "the folder that the run of a URL goes on in; default: runs/ and its name"
    parser.add_argument("--dir", metavar="DIR", help=where)
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code that comes with the model"
    )


def run(arguments: argparse.Namespace) -> Result:
    def train(display: Any) -> Run:
        trust = arguments.trust_remote_code
        where = arguments.dir
        return resume(arguments.path, display=display, trust_remote_code=trust, dir=where)

    return shown(train, arguments)
