"""A deliberately mismatched sampler, which uses rounded or noisy weights."""

import copy
from dataclasses import replace
from typing import Annotated

import torch

from rlzoo import Range, RlzooError, component
from rlzoo_zoo.samplers.distribution import Whole
from rlzoo_zoo.samplers.elsewhere import OFF_POLICY
from rlzoo_zoo.samplers.transformers import transformers


@component("sampler", caution=OFF_POLICY)
def rounded(
    policy,
    prompt_ids,
    prompt_mask,
    uniforms,
    *,
    bits: Annotated[int | None, Range(2, 16), "bits of a weight; null: not rounded"] = 8,
    noise: Annotated[float, Range(0), "standard deviation, in units of a row's spread"] = 0.0,
    seed: Annotated[int, Range(0), "of the noise"] = 0,
    distribution: Whole = False,
):
    """Responses to prompts (B, P) from a copy of the policy with changed matrices, with `uniforms`.

    bits: each row of a matrix is rounded to 2^(bits-1) - 1 steps on either side of 0, scaled by its
    largest entry, as in weight-only quantization. noise: each entry gets a normal random number
    times `noise` times the root mean square of its row; the random numbers are the same at every
    step. The samples therefore come from a different distribution than the trained one, as with
    engines that have low precision or other kernels, and `sampler_log_probs` belong to that
    distribution. bits=null and noise=0 equals the sampler `transformers`. Use it to compare
    corrections (`correction=tis`,
    `icepop`, `rejection`, rollout.old_log_probs=sampled); `sampler/log_prob_gap` measures the
    difference. It keeps a copy of the weights while it samples. It does not support
    parallel.strategy=shard.
    Source: the documentation of rlzoo; the rounding is that of Dettmers et al. 2022,
    arXiv:2208.07339, section 2.1, by rows.
    """
    if bits is None and noise == 0:
        return transformers(policy, prompt_ids, prompt_mask, uniforms, distribution=distribution)
    model = copy.deepcopy(policy.model)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in {id(p): p for p in model.parameters() if p.ndim == 2}.values():
            if hasattr(weight, "full_tensor"):
                raise RlzooError("sampler=rounded needs parallel.strategy=replicate")
            weight.copy_(_other(weight, bits, noise, draw))
    decoder = replace(policy.decoder, copy=None)
    other = replace(policy, model=model, value_head=None, decoder=decoder)
    drawn = transformers(other, prompt_ids, prompt_mask, uniforms, distribution=distribution)
    return {n: x for n, x in drawn.items() if n not in ("old_log_probs", "old_entropy")}


def _other(weight, bits, noise, draw):
    """A matrix (N, M) rounded, then with noise, row by row."""
    out = weight
    if bits is not None:
        step = weight.abs().amax(1, keepdim=True).clamp(min=1e-30) / (2 ** (bits - 1) - 1)
        out = (weight / step).round() * step
    if noise:
        spread = weight.square().mean(1, keepdim=True).sqrt()
        normal = torch.randn(weight.shape, generator=draw).to(weight)
        out = out + noise * spread * normal
    return out
