"""Decoding: responses token by token with a KV cache, each token where its uniform says.

transformers' models and caches, with a loop of our own around them, because it may do what theirs
may not: prompts that occur several times (a group's) are read once, rows that have ended leave the
batch, and each row's noise is its own, so that neither moves a token. Models whose cache cannot
give up rows go through `model.generate`.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlzoo.turns import ends_turn

if TYPE_CHECKING:
    from rlzoo.model import Policy

LEAVE = 0.9  # rows leave once no more than this share of the batch is live


def decode(
    policy: "Policy",
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    uniforms: Tensor | None,
    limit: int,
) -> dict[str, Tensor]:
    """Responses (B, T') to prompts (B, P), T' <= limit: `response_ids`, `sampler_log_probs` and
    `old_log_probs`. Token t by inverse CDF at uniforms[:, t] (B, T), greedily without."""
    from rlzoo.cache import let_grow  # transformers is there by now

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


def draw(policy: "Policy", logits: Tensor, u: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability under what is sampled from, and under the policy), each (B,):
    where the cumulative distribution of logits (B, V) passes u (B,); the likeliest without."""
    log_pi = (wide(logits) / policy.temperature).log_softmax(-1)  # (B, V)
    if u is None:
        token = log_pi.argmax(-1, keepdim=True)
        log_mu = log_pi
    else:
        log_mu = truncate(log_pi, policy.top_k, policy.top_p)
        cdf = log_mu.exp().cumsum(-1, dtype=torch.float64)
        # `right`: the first entry above u, so a token of probability 0 is never drawn.
        token = torch.searchsorted(cdf, u[:, None].to(cdf) * cdf[:, -1:], right=True)
        token = token.clamp(max=cdf.shape[1] - 1)
    return token[:, 0], log_mu.gather(1, token)[:, 0], log_pi.gather(1, token)[:, 0]


def truncate(log_pi: Tensor, top_k: int, top_p: float) -> Tensor:
    """log pi (B, V) restricted to the top k and to the nucleus of mass p, normalised again."""
    if top_k <= 0 and top_p >= 1:
        return log_pi
    ordered, index = log_pi.sort(-1, descending=True)
    drop = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k > 0:
        drop[:, top_k:] = True
    if top_p < 1:  # the token that passes p stays
        drop |= ordered.exp().cumsum(-1) - ordered.exp() >= top_p
    ordered = ordered.masked_fill(drop, -torch.inf).log_softmax(-1)
    return torch.empty_like(log_pi).scatter_(-1, index, ordered)


def wide(x: Tensor) -> Tensor:
    """In float32 if it is of half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


# ---------------------------------------------------------------- transformers' own loop


def _by_generation(
    policy: "Policy",
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
