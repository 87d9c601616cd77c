"""`rlzoo resume`: goes on with an interrupted run from its last checkpoint."""

import argparse
from typing import Any

from rlzoo.tools.run.command import shown
from rlzoo.tools.verb import Result
from rlzoo.train.start import Run, resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="RUN")
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code that comes with the model"
    )


def run(arguments: argparse.Namespace) -> Result:
    def train(display: Any) -> Run:
        trust = arguments.trust_remote_code
        return resume(arguments.path, display=display, trust_remote_code=trust)

    return shown(train, arguments)
