"""Rows of files and data sets: the zoo's `rlzoo_zoo.data` by the name that plugin authors use."""

from functools import partial

from rlzoo.plugin.installed import face

__getattr__ = partial(face, "data")
