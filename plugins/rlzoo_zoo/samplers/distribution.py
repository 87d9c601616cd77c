"""The sampler's log-probabilities of the whole vocabulary, by one more pass of what sampled."""

from typing import Annotated

import torch

from rlzoo import RlzooError

Whole = Annotated[bool, "also return `sampler_log_pi`: a pass more, and 4 V bytes a token"]


def sampler_log_pi(policy, prompt_ids, prompt_mask, drawn):
    """(B, T, V) of what the sampler `policy` has `drawn`; past a response's end anything."""
    truncates = policy.top_k > 0 or policy.top_p < 1 or policy.min_new_tokens > 0
    if policy.decoder.copy or (truncates and not policy.replay):
        what = "a copy in another dtype" if policy.decoder.copy else "top_k, top_p, min_new_tokens"
        raise RlzooError(f"sampler.distribution does not work with {what} of the rollout")
    ids = drawn["response_ids"]
    columns = {
        "prompt_ids": prompt_ids, "prompt_mask": prompt_mask, "response_ids": ids,
        "response_mask": torch.ones_like(ids), "response_attention": torch.ones_like(ids),
        **{name: x for name, x in drawn.items() if name == "kept_tokens"},
    }  # fmt: skip
    with torch.no_grad():
        return policy.log_prob_stats(columns, want=("log_pi",))["log_pi"]
