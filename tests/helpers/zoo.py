"""The installed zoo, loaded once: many tests are parametrized by what is in it."""

import rlzoo

ZOO = rlzoo.load_zoo()
