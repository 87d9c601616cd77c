"""Sampling with transformers' models and KV caches."""

from rlzoo import hookimpl


def transformers(policy, prompt_ids, prompt_mask, uniforms):
    """Responses to prompts (B, P), drawn by inverse CDF from `uniforms` (B, T).

    T is the length limit. One uniform per token makes a draw a function of (seed, step, row,
    position): neither the batch nor the process changes it. Equal prompts are read once, rows that
    have ended leave the batch; no token depends on either.
    Source: Wolf et al. 2020, arXiv:1910.03771.
    """
    return policy.generate(prompt_ids, prompt_mask, uniforms)


@hookimpl
def register_samplers(register):
    register(transformers)
