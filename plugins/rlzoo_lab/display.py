"""Where installed entry points expect `view.display`."""

from rlzoo_lab.view.display import make as make
