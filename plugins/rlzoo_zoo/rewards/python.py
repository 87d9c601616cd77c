"""A Python function of yours as the reward."""

from importlib import import_module

from rlzoo import RlzooError, hookimpl


def python(prompts, responses, answers, *, function: str = ""):
    """`function` is "module:name" of f(prompts, responses, answers) -> B numbers, or (B, T).

    The three are lists of B; the module is imported from the current folder or the environment.
    Source: the user.
    """
    module, _, name = function.partition(":")
    if not module or not name:
        raise RlzooError(f"rewards.python.function must read 'module:function'. Got {function!r}")
    return getattr(import_module(module), name)(prompts, responses, answers)


@hookimpl
def register_rewards(register):
    register(python)
