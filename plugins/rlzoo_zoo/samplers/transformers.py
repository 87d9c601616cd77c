"""Sampling with transformers' models and KV caches."""

from rlzoo import component
from rlzoo_zoo.samplers.distribution import Whole, sampler_log_pi


@component("sampler")
def transformers(policy, prompt_ids, prompt_mask, uniforms, *, distribution: Whole = False):
    """Responses to prompts (B, P), sampled by inverse CDF from `uniforms` (B, T).

    T is the length limit. One uniform number per token makes a sample a function of (seed, step,
    row, position), independent of batch and process. Equal prompts are processed once, and finished
    rows leave the batch; neither changes any token.
    Source: Wolf et al. 2020, arXiv:1910.03771.
    """
    drawn = policy.generate(prompt_ids, prompt_mask, uniforms)
    if distribution:
        drawn["sampler_log_pi"] = sampler_log_pi(policy, prompt_ids, prompt_mask, drawn)
    return drawn
