"""`rlzoo resume`: continues a run from its last checkpoint."""

import argparse

from rlzoo.cli.run.command import shown
from rlzoo.cli.verb import QUIET_HELP, Result
from rlzoo.errors import UsageError, nearest
from rlzoo.runs.folder import is_run, latest_run
from rlzoo.train.start import resume

STEPS = "train.steps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = "a run's folder, or the URL of its store; the steps to go on to, also if it is finished"
    parser.add_argument("words", nargs="*", metavar="RUN|train.steps=N", help=words)
    where = "the folder in which to continue a run from a URL; default: the run's name under runs/"
    parser.add_argument("--dir", metavar="DIR", help=where)
    kept = "also copy the run to this URL from now on"
    parser.add_argument("--store", metavar="URL", help=kept)
    parser.add_argument("--quiet", action="store_true", help=QUIET_HELP)
    parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own code")


def run(arguments: argparse.Namespace) -> Result:
    runs = [word for word in arguments.words if is_run(word)]
    if len(runs) > 1:
        raise UsageError(f"resume: accepts only one RUN. Got {', '.join(runs)}")
    steps = None
    for word in arguments.words:
        key, _, value = word.partition("=")
        if word in runs:
            continue
        if key not in (STEPS, "steps"):
            raise UsageError(
                f"{key}: a run continues with its own settings, and only {STEPS}=N may grow"
                f"{nearest(key, [STEPS])}; to train its model further with others, start a run "
                f"with model.path={runs[0] if runs else 'RUN'}/model"
            )
        if not value.isdecimal():
            raise UsageError(f"{STEPS}: must be an integer. Got {value!r}")
        steps = int(value)
    path = runs[0] if runs else latest_run()
    names = ("dir", "store", "trust_remote_code")
    options = {name: getattr(arguments, name) for name in names}
    return shown(lambda display: resume(path, steps=steps, display=display, **options), arguments)
