"""A recipe may read an environment variable only if the command line allows it, `--allow-env NAME`.

`RLZOO_ALLOW_ENV` has the names, separated by commas: workers and ranks inherit it, and a notebook
may set it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rlzoo.errors import RecipeError

VARIABLE = "RLZOO_ALLOW_ENV"
FOUND: dict[str, str] = {}  # a variable that a command has set itself -> its value, for a shell


def allowed() -> list[str]:
    """The variables that recipes may read."""
    words = (word.strip() for word in os.environ.get(VARIABLE, "").split(","))
    return list(dict.fromkeys(word for word in words if word))


def typed(command: str) -> str:
    """A command as a shell needs it, so that recipes may read the same variables."""
    given = "".join(f"export {name}={FOUND[name]}; " for name in allowed() if name in FOUND)
    return given + command + "".join(f" --allow-env {name}" for name in allowed())


def secret(name: str) -> str:
    """The value of an environment variable that a recipe names. Raises RecipeError if it is not set
    or the command line does not allow the name."""
    if name not in allowed():
        raise RecipeError(f"reading this environment variable requires --allow-env {name}")
    if name not in os.environ:
        raise RecipeError(f"there is no environment variable {name!r}")
    return os.environ[name]


@contextmanager
def allow_env(names: Iterable[str]) -> Iterator[None]:
    """Let recipes read these environment variables as well as those already allowed."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join([*allowed(), *names])
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        os.environ |= {VARIABLE: before} if before is not None else {}
