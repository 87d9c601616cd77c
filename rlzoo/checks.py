"""The conformance kit: the lab's `rlzoo_lab.checks`, under the name that plugin authors use."""

from functools import partial

from rlzoo.plugin.installed import face

__getattr__ = partial(face, "checks")
