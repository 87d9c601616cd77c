"""Packages that a component needs and rlzoo does not install by itself."""

from importlib.util import find_spec

from rlzoo import RlzooError


def needs(module, extra="", name=""):
    """A component's `check` that raises RlzooError, which names the extra, without the module."""

    def check(**_):
        if find_spec(module) is None:
            raise RlzooError(f"needs {name or module}: pip install 'rlzoo-llm[{extra or module}]'")

    return check
