"""rlzoo: a plugin-based zoo of token-level RL algorithms for language models.

Names are imported on first use (PEP 562), so that `rlzoo --help` loads no torch. The floors, from
the top; a package imports those below it, never one beside or above it (`lint-imports`):

    __main__, api                 the verbs as functions; a run as an object
    cli                           the command line; a verb is looked up by name
    tools                         what stands behind each verb
    train                         the loop, the update, checkpoints
    rollout, env                  from prompts to a batch; the same rules for gymnasium
    lm, oracle, checks            language models; exact truth; the conformance kit
    mdp, runs                     the batch and the rules of an episode; run folders
    recipe, parallel              from words to a plan; several processes
    plugin, data, show            components; rows of data; numbers and figures as text
    ops, stats, errors            tensors; plain numbers; faults that a user can mend
    registration                  tells gymnasium of the environment
"""

from importlib import import_module

from rlzoo.registration import register_with_gymnasium

__version__ = "0.1.0"

register_with_gymnasium()


_HOMES = {
    "Example": "rlzoo.plugin.component",
    "Discount": "rlzoo.plugin.options",
    "Range": "rlzoo.plugin.options",
    "RlzooError": "rlzoo.errors",
    "hookimpl": "rlzoo.plugin.hookspecs",
    "secret": "rlzoo.plugin.permissions",
    "load_zoo": "rlzoo.plugin.registry",
    "new": "rlzoo.tools.new",
    "open_recipe": "rlzoo.train.start",
    "Run": "rlzoo.api.runs",
    "load_run": "rlzoo.api.runs",
    "resume": "rlzoo.api.runs",
    "run": "rlzoo.api.runs",
    "advise": "rlzoo.api.verbs",
    "check": "rlzoo.api.verbs",
    "compare": "rlzoo.api.verbs",
    "diagnose": "rlzoo.api.verbs",
    "doctor": "rlzoo.api.verbs",
    "evaluate": "rlzoo.api.verbs",
    "export": "rlzoo.api.verbs",
    "report": "rlzoo.api.verbs",
    "sweep": "rlzoo.api.verbs",
    "trace": "rlzoo.api.verbs",
    "verb": "rlzoo.api.verbs",
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


__all__ = ["__version__", *_HOMES]


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'rlzoo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__():
    return sorted(__all__)
