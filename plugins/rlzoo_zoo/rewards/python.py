"""Your own Python function as the reward."""

import inspect
import os
import sys
from importlib import import_module

from rlzoo import RlzooError, component
from rlzoo.errors import nearest


def check(*, function):
    try:
        inspect.signature(load(function)).bind("prompts", "responses", "answers")
    except TypeError as error:
        raise RlzooError(
            f"rewards.python.function: {function} must take (prompts, responses, answers): {error}"
        ) from None


@component("reward", check=check)
def python(prompts, responses, answers, *, function: str = ""):
    """`function` is "module:name" of f(prompts, responses, answers) -> B numbers, or (B, T).

    All three are lists of length B; the module is imported from the current folder or the
    environment.
    Source: the user.
    """
    return load(function)(prompts, responses, answers)


def load(function: str):
    """The function; raises RlzooError where there is none."""
    module, _, name = function.partition(":")
    if module.endswith(".py"):
        way = f"{module.removesuffix('.py').replace('/', '.')}:{name}"
        raise RlzooError(f"rewards.python.function: {module!r} is a file; did you mean {way!r}?")
    if not module or not name:
        raise RlzooError(f"rewards.python.function must be 'module:function'. Got {function!r}")
    if os.getcwd() not in sys.path:  # a console script does not look in the current folder
        sys.path.append(os.getcwd())
    try:
        found = import_module(module)
    except (ImportError, SyntaxError) as error:
        raise RlzooError(f"rewards.python.function: cannot import {module!r}: {error}") from None
    if not callable(getattr(found, name, None)):
        there = [n for n, x in vars(found).items() if callable(x) and not n.startswith("_")]
        hint = nearest(name, there)
        raise RlzooError(f"rewards.python.function: {module!r} has no function {name!r}{hint}")
    return getattr(found, name)
