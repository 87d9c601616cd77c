"""The scripts of docs/ and docs/studies/, which import each other as they do when run."""

import sys
from importlib import import_module

from helpers import ROOT


def script(name):
    """docs/NAME.py or docs/studies/NAME.py as a module; both are on the path for that long only."""
    folders = [str(ROOT / "docs"), str(ROOT / "docs/studies")]
    sys.path[:0] = folders
    try:
        return import_module(name)
    finally:
        for folder in folders:
            sys.path.remove(folder)
