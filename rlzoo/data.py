"""Rows of files and data sets: the zoo's `rlzoo_zoo.data`, under the name for plugin authors."""

from functools import partial

from rlzoo.plugin.installed import face

__getattr__ = partial(face, "data")
