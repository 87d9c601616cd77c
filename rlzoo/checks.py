"""The conformance kit as a module: `from rlzoo.checks import run_checks`, as `rlzoo.checks` is."""

import sys
from types import ModuleType

import rlzoo

# The package that has the kit brings it as a name of `rlzoo`, which this module stands for.
kit: ModuleType = rlzoo.__getattr__(__name__.rpartition(".")[2])
sys.modules[__name__] = kit
