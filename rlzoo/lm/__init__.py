"""Language models: the policy, its reference and the critic over transformers' models.

May import `accel` and the packages below.
Plugin authors import from here `load_causal_lm`, `decoded` for the text of sampled ids, and
`opened` for the ids of a prompt.

    build         builds the models that a plan needs
    critic        V(s_t) for each token: a value head on its own trunk, or on the policy's
    loading       models and tokenizers from disk or the hub
    lora          adapters that are trained instead of a model's own weights
    policy        the policy: a causal LM that samples, and gives log-probs
    probe         checks that a model's passes agree before it trains; its traits
    prompts       tokenization of prompts, text or chat
    templates     chat templates: arguments, dates, what they leave out
    weights       safe reading of a model's files
    world         an opened recipe: its plan and its engine
"""

from typing import Any

__all__ = ["decoded", "load_causal_lm", "opened", "reachable"]


def __getattr__(name: str) -> Any:
    """Imported on first use, since they import torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlzoo.lm import loading, prompts
    from rlzoo.mdp import rules

    return getattr({"decoded": rules, "opened": prompts}.get(name, loading), name)
