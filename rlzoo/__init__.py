"""rlzoo: a plugin-based zoo of token-level RL algorithms for language models.

Names are imported on first use (PEP 562), so that `rlzoo --help` loads no torch. The layers, from
the top; a package imports only from the layers below it (`lint-imports`):

    __main__                      `python -m rlzoo`
    cli                           the command line; a verb is looked up by name
    train                         the loop, checkpoints
    step                          one training step: columns, advantages, update
    rollout, env                  from prompts to responses; the same rules for gymnasium
    lm                            language models: policy, reference, critic
    accel                         faster models: ranks, caches, graphs, packing
    mdp, runs                     the batch and the rules of an episode; run folders
    recipe, checks                from words to a plan; the door to the conformance kit
    plugin, format                components; formatting of numbers and texts
    waiting                       requests with a time limit; pauses that a signal ends
    ops, stats, errors            tensors; plain numbers; errors that a user can fix
    registration                  registers the environment with gymnasium
"""

from functools import cache
from importlib import import_module

from rlzoo.plugin.installed import installed
from rlzoo.registration import register_with_gymnasium

__version__ = "0.1.0"

register_with_gymnasium()


_HOMES = {
    "Example": "rlzoo.plugin.component",
    "Discount": "rlzoo.plugin.options",
    "Range": "rlzoo.plugin.options",
    "RlzooError": "rlzoo.errors",
    "component": "rlzoo.plugin.hookspecs",
    "hookimpl": "rlzoo.plugin.hookspecs",
    "secret": "rlzoo.plugin.permissions",
    "load_zoo": "rlzoo.plugin.registry",
    "open_recipe": "rlzoo.train.start",
    "group_mean": "rlzoo.ops",
    "group_std": "rlzoo.ops",
    "group_sum": "rlzoo.ops",
    "group_count": "rlzoo.ops",
    "group_degenerate": "rlzoo.ops",
    "masked_mean": "rlzoo.ops",
    "masked_var": "rlzoo.ops",
    "linear_scan": "rlzoo.ops",
    "next_action": "rlzoo.ops",
    "td_lambda": "rlzoo.ops",
}


@cache
def _names():
    """What other packages add to `rlzoo`, by name: entry points of the group `rlzoo.names`."""
    return {point.name: point for point in installed("rlzoo.names")}


def __getattr__(name):
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__all__":
        return ["__version__", *_HOMES, *(n for n, point in _names().items() if point.attr)]
    if name.startswith("__") or name not in _names():
        raise AttributeError(f"module 'rlzoo' has no attribute {name!r}")
    return _names()[name].load()


def __dir__():
    return sorted(__getattr__("__all__"))
