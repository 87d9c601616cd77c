"""Registers the environment with gymnasium, without importing gymnasium.

Gymnasium 1.0 has no entry points for environments, and importing it takes half a second: if it is
not imported yet, registration waits until it is.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import Any

ENV_ID = "rlzoo/TokenMDP-v0"


def register_with_gymnasium() -> None:
    """Register the environment: now, or once gymnasium is imported."""
    if "gymnasium" in sys.modules:
        _register(sys.modules["gymnasium"])
    else:
        sys.meta_path.insert(0, _WhenImported())


def _register(gymnasium: Any) -> None:
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            ENV_ID, entry_point="rlzoo.env:TokenEnv", vector_entry_point="rlzoo.env:TokenVectorEnv"
        )


class _WhenImported(MetaPathFinder):
    """Lets the other finders import gymnasium, and registers once it is executed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _register(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
