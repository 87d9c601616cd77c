"""Where installed entry points expect `view.display`. May import it alone."""

from rlzoo_lab.view.display import make as make
