"""What a recipe may have of the machine it runs on: an environment variable only by the word of
the command line, `--allow-env NAME`.

The names stand in the environment variable `RLZOO_ALLOW_ENV`, separated by commas, so that workers
and ranks have them too; a notebook may set it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rlzoo.errors import RecipeError

VARIABLE = "RLZOO_ALLOW_ENV"


def is_allowed(name: str) -> bool:
    return name in [word.strip() for word in os.environ.get(VARIABLE, "").split(",")]


def secret(name: str) -> str:
    """The value of an environment variable that a recipe names. Raises RecipeError if it is not set
    or the command line does not allow the name."""
    if not is_allowed(name):
        raise RecipeError(f"reading this environment variable requires --allow-env {name}")
    if name not in os.environ:
        raise RecipeError(f"there is no environment variable {name!r}")
    return os.environ[name]


@contextmanager
def allow_env(names: Iterable[str]) -> Iterator[None]:
    """Recipes may read these environment variables, as well as those already allowed."""
    before = os.environ.get(VARIABLE)
    if names := list(names):
        os.environ[VARIABLE] = ",".join([*([before] if before else []), *names])
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        else:
            os.environ.pop(VARIABLE, None)
