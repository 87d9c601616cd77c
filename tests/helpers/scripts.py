"""The scripts of docs/, which import each other as they do when run."""

import sys
from importlib import import_module

from helpers import ROOT


def script(name):
    """docs/NAME.py as a module; docs/ is on the path no longer than that takes."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(ROOT / "docs"))
