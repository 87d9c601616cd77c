"""Where installed entry points expect `supervised`. May import it alone."""

from rlzoo_lab.supervised import __path__ as __path__
