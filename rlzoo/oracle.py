"""Exact values in small worlds: the lab's `rlzoo_lab.oracle`, under the name for plugin authors."""

from functools import partial

from rlzoo.plugin.installed import face

__getattr__ = partial(face, "oracle")
