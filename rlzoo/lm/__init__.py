"""Language models: the policy, its reference and the critic over transformers' models.

May import `mdp`, `runs` and what lies below.
Plugin authors import from here `RewardModel`, `ProcessRewardModel` and `load_causal_lm`.

    attention     each row's own, where rows share prompts
    build         from a plan to its models: nothing that nobody needs
    cache         KV caches that grow in place, or have a fixed shape
    contract      what a model's own passes agree on, before it trains
    critic        V(s_t) for each token: a value head on a trunk of its own, or on the policy's
    decode        responses token by token, each token where its uniform number says
    graphs        CUDA graphs of a step that is always the same
    head          log-probs, entropy and their kin straight from hidden states
    layout        how rows lie in a forward pass: side by side, or prompts once
    lean          passes of an update that leave small gradients of large tables
    loading       models and tokenizers from disk or the hub; LoRA
    memory        how much memory a pass may take
    meter         how many tokens a run has generated
    models        a run's networks: policy, reference, critic
    passes        how rows go through a network: how many at once, on which rank
    policy        the policy: a causal LM that samples, and gives log-probs
    prompts       from a prompt, text or chat, to tokens
    process_reward_model  a token classifier that scores each step of a response
    recompute     gradient checkpointing, in eval mode both times
    reward_model  a sequence classifier with one label that scores responses
    sampling_copy  the policy's network as it samples: in another dtype, adapters merged
    threads       how many CPU threads a model is worth
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
