"""The page's JavaScript, file by file, and what it answers."""

import json
from pathlib import Path

import rlzoo_lab.view
from helpers import ROOT
from helpers.javascript import run_javascript

HOME = ROOT / "docs" / "playground"
SHARED = Path(rlzoo_lab.view.__file__).parent


def source_of(*names):
    """The named scripts, one after the other."""
    homes = [SHARED if (SHARED / f"{name}.js").is_file() else HOME for name in names]
    paths = [home / f"{name}.js" for home, name in zip(homes, names, strict=True)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def answers(source, function, arguments):
    """function(argument) for each of the arguments, which JSON can hold."""
    return run_javascript(f"{source}\nconst given = {json.dumps(arguments)};",
                          f"given.map({function})")  # fmt: skip
