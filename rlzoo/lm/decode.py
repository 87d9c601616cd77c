"""Decoding: responses token by token with a KV cache, each token where its uniform says.

transformers' models and caches, with a loop of our own around them, because it may do what theirs
may not: prompts that occur several times (a group's) are read once, rows that have ended leave the
batch, and each row's noise is its own, so that neither moves a token. Models whose cache cannot
give up rows go through `model.generate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlzoo.mdp.turns import ends_turn

if TYPE_CHECKING:
    from rlzoo.lm.policy import Policy


BLOCK = 512  # tokens of the vocabulary, of which a draw looks at the sum before it looks at each

FEW, LARGE = range(8, 65), 2**19  # rows, and weights of a layer: see `few_rows`

LEAVE = 0.9  # rows leave once no more than this share of the batch is live


def decode(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    uniforms: Tensor | None,
    limit: int,
) -> dict[str, Tensor]:
    """Responses (B, T') to prompts (B, P), T' <= limit: `response_ids`, `sampler_log_probs` and
    `old_log_probs`. Token t by inverse CDF at uniforms[:, t] (B, T), greedily without."""
    from rlzoo.lm.cache import let_grow  # transformers is there by now

    model, device = policy.model, prompt_ids.device
    rows = len(prompt_ids)
    first = torch.cat([prompt_ids, prompt_mask.long()], 1)
    unique, home = torch.unique(first, dim=0, return_inverse=True)
    ids, mask = unique[:, : prompt_ids.shape[1]], unique[:, prompt_ids.shape[1] :]
    place = (mask.cumsum(1) - 1).clamp(min=0)
    out = model(
        input_ids=ids, attention_mask=_needed(mask), position_ids=place, use_cache=True,
        logits_to_keep=1,
    )  # fmt: skip
    cache: Any = getattr(out, "past_key_values", None)
    if not _gives_up_rows(cache):
        return _by_generation(policy, prompt_ids, prompt_mask, uniforms, limit)
    let_grow(cache)
    cache.batch_select_indices(home)
    logits, mask, place = out.logits[home, -1], mask[home], place[home, -1]
    tokens = torch.full((rows, limit), policy.pad_id, device=device)
    sampled, ours = (logits.new_zeros(rows, limit, dtype=wide(logits).dtype) for _ in range(2))
    live = torch.arange(rows, device=device)  # the row of each place in the batch
    done = torch.zeros(rows, dtype=torch.bool, device=device)  # of those
    eos = torch.tensor(policy.eos_ids, device=device)
    for t in range(limit):
        u = None if uniforms is None else uniforms[live, t]
        token, log_mu, log_pi = draw(policy, logits, u)
        now = live[~done]
        tokens[now, t] = token[~done]
        sampled[now, t], ours[now, t] = log_mu[~done], log_pi[~done]
        done |= torch.isin(token, eos)
        if policy.stops:
            said = tokens[live, : t + 1].tolist()
            ends = [ends_turn(policy.tokenizer, row, policy.eos_ids, policy.stops) for row in said]
            done |= torch.tensor(ends, device=device)
        left = int((~done).sum())
        if left == 0 or t + 1 == limit:
            break
        if left <= LEAVE * len(live):
            keep = (~done).nonzero()[:, 0]
            cache.batch_select_indices(keep)
            live, done, token = live[keep], done[keep], token[keep]
            mask, place = mask[keep], place[keep]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        place = place + 1
        logits = model(
            input_ids=token[:, None], attention_mask=_needed(mask), position_ids=place[:, None],
            past_key_values=cache, use_cache=True,
        ).logits[:, -1]  # fmt: skip
    return {
        "response_ids": tokens[:, : t + 1],
        "sampler_log_probs": sampled[:, : t + 1],
        "old_log_probs": ours[:, : t + 1],
    }


@contextmanager
def few_rows(model: nn.Module) -> Iterator[None]:
    """Within, on a CPU in float32, large linear layers take `FEW` rows by W x^T in place of x W^T:
    mostly 1.1 to 1.8 times as fast there, and slower elsewhere."""
    found = [
        module
        for module in model.modules()
        if type(module) is nn.Linear
        and (module.weight.device.type, module.weight.dtype) == ("cpu", torch.float32)
        and module.weight.numel() >= LARGE
    ]
    for module in found:
        module.forward = partial(_linear, module)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in found:
            del module.forward


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    rows = x.numel() // x.shape[-1]
    if rows not in FEW or x.dtype != module.weight.dtype or torch.is_autocast_enabled("cpu"):
        return F.linear(x, module.weight, module.bias)
    out, start = x.new_empty(rows, len(module.weight)), 0
    given = x.reshape(rows, -1).t().contiguous()
    for block in module.weight.split(2048):  # turned around while it is in the cache
        out[:, start : start + len(block)] = torch.mm(block, given).t()
        start += len(block)
    out = out if module.bias is None else out.add_(module.bias)
    return out.view(*x.shape[:-1], -1)


def _needed(mask: Tensor) -> Tensor | None:
    """The attention mask, or None where nothing is padded: attention is faster without."""
    return mask if not bool(mask.all()) else None


def _gives_up_rows(cache: Any) -> bool:
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    layers = getattr(cache, "layers", None) or []
    # Kinds derived from these hold more than keys and values (a recurrent state, say).
    return bool(layers) and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers
    )


def draw(policy: Policy, logits: Tensor, u: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability under what is sampled from, and under the policy), each (B,):
    where the cumulative distribution of logits (B, V) passes u (B,); the likeliest without."""
    logits = wide(logits)
    logits = logits if policy.temperature == 1.0 else logits / policy.temperature
    if u is None or policy.top_k > 0 or policy.top_p < 1:
        log_pi = logits.log_softmax(-1)  # (B, V)
        log_mu = log_pi if u is None else truncate(log_pi, policy.top_k, policy.top_p)
        token = (log_pi.argmax(-1) if u is None else pick(log_mu.exp(), u))[:, None]
        return token[:, 0], log_mu.gather(1, token)[:, 0], log_pi.gather(1, token)[:, 0]
    p = logits.softmax(-1)
    token = pick(p, u)
    log_pi = p.gather(1, token[:, None]).log()[:, 0]
    return token, log_pi, log_pi


def pick(p: Tensor, u: Tensor) -> Tensor:
    """The index (B,) at which the running sum of p (B, V) passes u (B,) of the whole sum; never
    one where p is 0.

    A block of the vocabulary first, then within it: running sums in float64 over all of it would
    cost as much as the softmax.
    """
    width = p.shape[1] if p.shape[1] <= BLOCK else BLOCK
    blocks = F.pad(p, (0, -p.shape[1] % width)).view(len(p), -1, width)
    sums = blocks.sum(-1).double()
    block, left = _passes(sums, u.double() * sums.sum(1))
    inner = blocks[torch.arange(len(p), device=p.device), block].double()
    # The block's own sum was rounded: what is left is a share of it.
    share = left / sums.gather(1, block[:, None])[:, 0]
    index, _ = _passes(inner, share * inner.sum(1))
    return (block * width + index).clamp(max=p.shape[1] - 1)


def _passes(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first index (B,) at which the running sum of x (B, N) is above `target` (B,), and what
    of the target is left there."""
    sums = x.cumsum(1)
    # At most just below the end: rounding must not step over the last entry above 0.
    target = target.minimum(sums[:, -1].nextafter(sums.new_zeros(())))
    index = torch.searchsorted(sums, target[:, None], right=True).clamp(max=x.shape[1] - 1)
    return index[:, 0], target - (sums - x).gather(1, index)[:, 0]


def truncate(log_pi: Tensor, top_k: int, top_p: float) -> Tensor:
    """log pi (B, V) restricted to the top k, and of what they leave to the nucleus of mass p, as
    transformers and vLLM do it; normalised again."""
    if top_k <= 0 and top_p >= 1:
        return log_pi
    ordered, index = log_pi.sort(-1, descending=True)
    if top_k > 0:
        ordered[:, top_k:] = -torch.inf
    if top_p < 1:  # the token that passes p stays
        p = ordered.softmax(-1)
        ordered = ordered.masked_fill(p.cumsum(-1) - p >= top_p, -torch.inf)
    return torch.empty_like(log_pi).scatter_(-1, index, ordered.log_softmax(-1))


def wide(x: Tensor) -> Tensor:
    """In float32 if it is of half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


# ---------------------------------------------------------------- transformers' own loop


def _by_generation(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    uniforms: Tensor | None,
    limit: int,
) -> dict[str, Tensor]:
    """As `decode`, by `model.generate`: a logits processor draws the token, and leaves no other."""
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    sampled: list[Tensor] = []
    ours: list[Tensor] = []

    def processor(input_ids: Tensor, scores: Tensor) -> Tensor:
        u = None if uniforms is None else uniforms[:, len(sampled)]
        token, log_mu, log_pi = draw(policy, scores, u)
        sampled.append(log_mu)
        ours.append(log_pi)
        return torch.full_like(scores, -torch.inf).scatter_(1, token[:, None], 0)

    def stopped(input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        said = input_ids[:, prompt_ids.shape[1] :].tolist()
        ends = [ends_turn(policy.tokenizer, row, policy.eos_ids, policy.stops) for row in said]
        return torch.tensor(ends, device=input_ids.device)

    out = policy.model.generate(
        input_ids=prompt_ids,
        attention_mask=prompt_mask.long(),
        generation_config=GenerationConfig(
            max_new_tokens=limit,
            do_sample=False,
            use_cache=True,
            eos_token_id=policy.eos_ids,
            pad_token_id=policy.pad_id,
        ),
        logits_processor=LogitsProcessorList([processor]),
        stopping_criteria=StoppingCriteriaList([stopped] if policy.stops else []),
    )
    return {
        "response_ids": out[:, prompt_ids.shape[1] :],
        "sampler_log_probs": torch.stack(sampled, 1),
        "old_log_probs": torch.stack(ours, 1),
    }
