"""Exact truth in small worlds: the lab's `rlzoo_lab.oracle` by the name that plugin authors use."""

from functools import partial

from rlzoo.plugin.installed import face

__getattr__ = partial(face, "oracle")
