"""Where installed entry points expect `supervised`."""

from rlzoo_lab.supervised import __path__ as __path__
