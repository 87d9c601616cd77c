"""`rlzoo diagnose`: exact bias and variance of estimators.  No torch here."""

import argparse
import time
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import QUIET_HELP, Result
from rlzoo.errors import RlzooError
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.folder import is_run
from rlzoo_lab.diagnose.exact import diagnose
from rlzoo_lab.diagnose.tables import blocks, curves
from rlzoo_lab.view.blocks import Block
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.html import page
from rlzoo_lab.view.texts import Shown
from rlzoo_lab.view.written import Written


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("words", nargs="*", metavar="RUN | key=value")
    add = sub.add_argument
    add("--html", action=Written, metavar="FILE", help="write the tables and curves as a page")
    add("--quiet", action="store_true", help=QUIET_HELP)
    add_declared(sub, "rlzoo_lab.api.verbs:diagnose")


def run(arguments: argparse.Namespace) -> Result:
    words = arguments.words
    if not words:
        raise RlzooError("diagnose: requires recipe=NAME [estimator=a,b ...] or a RUN folder")
    from rlzoo.format.console import doing  # here: rich

    if is_run(words[0]):
        from rlzoo_lab.diagnose.saved import blocks_of_run, diagnose_run

        with doing("computing estimators on the saved batch", arguments.quiet):
            document = diagnose_run(words[0], words[1:], parameters=arguments.parameters)
        return _result(document, blocks_of_run(document))
    began = time.perf_counter()
    with doing("computing estimators in the world", arguments.quiet):
        document = diagnose(words, arguments)
    document["seconds"] = time.perf_counter() - began
    return _result(document, blocks(document))


def _result(document: dict[str, Any], blocks: list[Block]) -> Result:
    failed = document.get("failed", ())

    def write(path: Path) -> None:
        shown = [*blocks, *curves(document)]
        write_atomically(path, page("Estimators compared", shown).encode())

    return Result(
        document,
        Shown(blocks),
        status=1 if failed else 0,
        notes=[f"{fault['estimator']}: {fault['reason']}" for fault in failed],
        files={"html": write},
    )
