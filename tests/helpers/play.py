"""The page's JavaScript, file by file, and what it answers."""

import json
from pathlib import Path

import rlzoo_lab.play
from helpers.javascript import run_javascript

HOME = Path(rlzoo_lab.play.__file__).parent


def source_of(*names):
    """The named scripts, one after the other."""
    return "\n".join((HOME / f"{name}.js").read_text(encoding="utf-8") for name in names)


def answers(source, function, arguments):
    """function(argument) for each of the arguments, which JSON can hold."""
    return run_javascript(f"{source}\nconst given = {json.dumps(arguments)};",
                          f"given.map({function})")  # fmt: skip
