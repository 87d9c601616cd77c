"""Language models: the policy, its reference and the critic over transformers' models.

May import `accel` and what lies below.
Plugin authors import from here `RewardModel`, `ProcessRewardModel` and `load_causal_lm`.

    build         from a plan to its models: nothing that nobody needs
    contract      what a model's own passes agree on, before it trains
    critic        V(s_t) for each token: a value head on a trunk of its own, or on the policy's
    decode        responses token by token, each token where its uniform number says
    head          log-probs, entropy and their kin straight from hidden states
    loading       models and tokenizers from disk or the hub; LoRA
    meter         how many tokens a run has generated
    models        a run's networks: policy, reference, critic
    passes        how rows go through a network: how many at once, on which rank
    policy        the policy: a causal LM that samples, and gives log-probs
    prompts       from a prompt, text or chat, to tokens
    process_reward_model  a token classifier that scores each step of a response
    reward_model  a sequence classifier with one label that scores responses
    tiny          the small models that ship: made, not downloaded
"""

from importlib import import_module
from typing import Any

__all__ = ["ProcessRewardModel", "RewardModel", "load_causal_lm"]

HOMES = {
    "ProcessRewardModel": "rlzoo.lm.process_reward_model",
    "RewardModel": "rlzoo.lm.reward_model",
    "load_causal_lm": "rlzoo.lm.loading",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: torch stands behind them."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
