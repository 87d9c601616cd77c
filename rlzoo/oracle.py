"""Exact truth in small worlds: the lab's `rlzoo_lab.oracle` by the name that plugin authors use."""

from typing import Any

from rlzoo.plugin.installed import face


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    return face("oracle", name)
