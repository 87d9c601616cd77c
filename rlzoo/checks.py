"""The conformance kit as a module: `from rlzoo.checks import run_checks`.

The package that has it brings it under the entry point `checks` of the group `rlzoo.names`.
"""

from typing import Any

from rlzoo.plugin.installed import installed


def __getattr__(name: str) -> Any:
    (kit,) = (p for p in installed("rlzoo.names") if p.name == __name__.rpartition(".")[2])
    return getattr(kit.load(), name)
