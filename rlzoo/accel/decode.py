"""Decoding, token by token with a KV cache; each token is drawn with its own uniform number.

Repeated prompts (of a group) are read once, and rows that have ended are dropped: each row has its
own noise, so neither changes a token. The loop serves two caches, which set how often it checks the
rows: `Growing`, and that of `rlzoo.accel.static`. Others are decoded by `model.generate`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from rlzoo.accel.head import LEAST, packed, wide
from rlzoo.accel.hf_internals import by_onednn, plain_cache, take_over
from rlzoo.accel.sampling_copy import SamplingCopy
from rlzoo.accel.static import Fixed, Graph, Step
from rlzoo.errors import ModelError, out_of_memory
from rlzoo.mdp.batch import joined
from rlzoo.mdp.turns import ends_turn, first_stop, reach
from rlzoo.plugin.call import TOKENS

T = TypeVar("T")
Policy = Any  # `rlzoo.lm.policy.Policy`, which imports this module

HELD = 2**22  # logits of a draw at a time: from 32 MB on, glibc requests each tensor again
NAMES = TOKENS[:5]  # what `draw` returns
BLOCK = 512  # tokens of the vocabulary, of which a draw looks at the sum before it looks at each


@dataclass
class Decoder:
    """Samples rows for a policy.

    static: with a cache of a fixed shape. dtype: the precision of sampling, None for that of the
    policy's passes. copy: the network that samples in place of the policy's. notes: gain a line
    when memory runs out; from then on, at most `most_rows` rows are sampled at a time, which
    changes no token.
    """

    static: bool = False
    dtype: str | None = None
    copy: SamplingCopy | None = None
    notes: list[str] = field(default_factory=list)
    most_rows: int | None = None

    def generate(
        self,
        policy: Policy,
        ids: Tensor,
        mask: Tensor,
        uniforms: Tensor | None,
        room: int | Tensor,
    ) -> dict[str, Tensor]:
        """See `decode`. room: the most tokens of a response, or of each, (B, 1) on the host.

        Unless the model `pads` and has the same `room` for all, rows of one length at a time."""
        model = policy.model if self.copy is None else self.copy.follow()
        precision = policy.precision() if self.dtype is None else nullcontext()
        most = self.most_rows
        parts = [torch.arange(len(ids))]
        if not policy.traits.pads or isinstance(room, Tensor):
            lengths = mask.cpu().long().sum(1)
            parts = [(lengths == n).nonzero()[:, 0] for n in lengths.unique().tolist()]

        def sample(rows: Tensor) -> dict[str, Tensor]:
            # None is padded where the model does not pad.
            kept = slice(None) if policy.traits.pads else mask[rows].bool().any(0)
            u = None if uniforms is None else uniforms[rows]
            limit = room if isinstance(room, int) else int(room[rows].max())
            prompts = ids[rows][:, kept], mask[rows][:, kept]
            return decode(policy, model, self, *prompts, u, limit)

        with policy.adapted(), precision, by_onednn(model, packed=True):
            done = [pair for rows in parts for pair in self._fitting(sample, rows)]
        if self.most_rows != most:
            self.notes.append(
                f"out of memory while sampling; continuing with {self.most_rows} rows at a time "
                "(same tokens)"
            )
        if len(done) == 1:
            return done[0][1]
        back = torch.cat([rows for rows, _ in done]).argsort()
        columns = joined([drawn for _, drawn in done], policy.pad_id)
        return {name: x[back] for name, x in columns.items()}

    def _fitting(self, sample: Callable[[Tensor], T], rows: Tensor) -> list[tuple[Tensor, T]]:
        """(rows, their sample), as many at a time as fit into memory."""
        if self.most_rows and len(rows) > self.most_rows:
            return [x for part in rows.split(self.most_rows) for x in self._fitting(sample, part)]
        try:
            return [(rows, sample(rows))]
        except RuntimeError as error:
            if not out_of_memory(error) or len(rows) == 1:
                raise
        # Not in `except`: there the traceback holds on to what was allocated.
        self.most_rows = (len(rows) + 1) // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return self._fitting(sample, rows)


def decode(
    policy: Policy,
    model: Any,
    decoder: Decoder,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    uniforms: Tensor | None,
    limit: int,
) -> dict[str, Tensor]:
    """`NAMES` (B, T') of responses to prompts (B, P), T' <= limit. Token t is drawn by inverse CDF
    at uniforms[:, t] (B, T), or greedily without. model: the policy's network, or its copy."""
    first = torch.cat([prompt_ids.cpu(), prompt_mask.cpu().long()], 1)
    unique, home = torch.unique(first, dim=0, return_inverse=True)
    ids, mask = unique[:, : prompt_ids.shape[1]], unique[:, prompt_ids.shape[1] :]
    place, padded = (mask.cumsum(1) - 1).clamp(min=0), not bool(mask.all())
    ids, mask, place, home = (x.to(prompt_ids.device) for x in (ids, mask, place, home))
    out = model(
        input_ids=ids, attention_mask=mask if padded else None, position_ids=place,
        use_cache=True, logits_to_keep=1,
    )  # fmt: skip
    filled: Any = getattr(out, "past_key_values", None)
    if not plain_cache(filled, DynamicSlidingWindowLayer):
        if decoder.static:
            kind = type(filled).__name__
            raise ModelError(f"its cache contains more than keys and values ({kind})")
        return by_generation(policy, model, prompt_ids, prompt_mask, uniforms, limit)
    cache = (Fixed if decoder.static else Growing)(model, filled, home, mask, limit)
    logits, place = out.logits[home, -1], place[home, -1:]
    rows = Decoding(policy, model, cache, logits, place, uniforms, limit, decoder.notes)
    del out, logits  # the prompts' own keys and values
    length = 1
    left = rows.look(length) if length % cache.every == 0 or length == limit else len(home)
    while left and length < limit:
        block = min(cache.every - length % cache.every, limit - length)
        step = rows.fit(left, block)
        for _ in range(block):
            step()
        length += block
        left = rows.look(length)
    over = torch.arange(rows.longest, device=home.device) >= rows.ends[:, None]
    fill = {"response_ids": policy.pad_id}  # after a row's end
    columns = {name: x[:, : rows.longest] for name, x in rows.columns.items()}
    cut = {2: over, 3: over[..., None]}
    return {name: x.masked_fill(cut[x.ndim], fill.get(name, 0)) for name, x in columns.items()}


def by_generation(
    policy: Policy,
    model: Any,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    uniforms: Tensor | None,
    limit: int,
) -> dict[str, Tensor]:
    """`decode` by `model.generate`, whose logits processor draws the token."""
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    sampled: list[tuple[Tensor, ...]] = []

    def processor(input_ids: Tensor, scores: Tensor) -> Tensor:
        u = None if uniforms is None else uniforms[:, len(sampled)]
        barred = None
        if len(sampled) < policy.min_new_tokens:
            barred = torch.zeros_like(scores[0], dtype=torch.bool)
            barred[policy.eos_ids] = True
        token, *more = draw(policy, scores, u, barred)
        sampled.append(tuple(more))
        return torch.full_like(scores, -torch.inf).scatter_(1, token[:, None], 0)

    def stopped(input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        responses = input_ids[:, prompt_ids.shape[1] :].tolist()
        ends = [ends_turn(policy.tokenizer, row, policy.eos_ids, policy.stops) for row in responses]
        return torch.tensor(ends, device=input_ids.device)

    how = GenerationConfig(
        max_new_tokens=limit,
        do_sample=False,
        use_cache=True,
        eos_token_id=policy.eos_ids or [-1],  # the model's own, if none is given
        pad_token_id=policy.pad_id,
    )
    out = model.generate(
        input_ids=prompt_ids,
        attention_mask=prompt_mask.long(),
        generation_config=how,
        logits_processor=LogitsProcessorList([processor]),
        stopping_criteria=StoppingCriteriaList([stopped] if policy.stops else []),
    )
    columns = (torch.stack(x, 1) for x in zip(*sampled, strict=True))
    return dict(zip(NAMES, (out[:, prompt_ids.shape[1] :], *columns), strict=False))


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer (B, heads, N, d): views of buffers with spare room."""

    keys: Tensor
    values: Tensor
    room: tuple[Tensor, Tensor] | None = None  # keys, values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any):
        n = self.keys.shape[-2]
        m = n + key_states.shape[-2]
        if self.room is None or self.room[0].shape[-2] < m:
            more = (0, 0, 0, m + m // 2 + 16 - n)
            self.room = F.pad(self.keys, more), F.pad(self.values, more)
        keys, values = self.room
        keys[:, :, n:m], values[:, :, n:m] = key_states, value_states
        self.keys, self.values = keys[:, :, :m], values[:, :, :m]
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, with their spare room: the next token would copy all once more."""
        n, room = self.keys.shape[-2], self.room or (self.keys, self.values)
        keys, values = self.room = room[0][indices], room[1][indices]
        self.keys, self.values = keys[:, :, :n], values[:, :, :n]


class Growing:
    """A cache that has a column for each token, added in place: transformers' own copies all keys
    and values for each.

    seen: (B, L), where a row has tokens, not padding. every: tokens between two looks at the rows.
    leave: rows leave once no more than this share of them continues. unit: the number of rows is a
    multiple of it.
    """

    every, leave, unit = 1, 0.9, 1

    def __init__(self, model: Any, cache: Any, home: Tensor, seen: Tensor, limit: int):
        self.cache, self.seen = cache, seen
        cache.layers = [
            take_over(GrowingLayer, layer) if type(layer) is DynamicLayer else layer
            for layer in cache.layers
        ]
        self.keep(home)

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows (B',), in this order."""
        for layer in self.cache.layers:
            layer.batch_select_indices(rows)
        self.seen = self.seen[rows]
        self.padded = not bool(self.seen.all())

    def advance(self) -> Tensor | None:
        """Add one token; returns each row's mask, or None if rows see everything: it is faster."""
        self.seen = torch.cat([self.seen, self.seen.new_ones(len(self.seen), 1)], 1)
        return self.seen if self.padded else None


class Decoding:
    """Rows that are being decoded, and their tokens so far.

    Only `look` depends on values: between two looks, the host only launches operations.
    live: (B,), the row of the whole batch that each is.  now: (1,), the position of the next token.
    """

    def __init__(
        self,
        policy: Policy,
        model: Any,
        cache: Growing | Fixed,
        logits: Tensor,
        place: Tensor,
        uniforms: Tensor | None,
        limit: int,
        notes: list[str],
    ):
        device, whole = logits.device, (len(logits), limit)
        self.policy, self.model, self.cache, self.notes = policy, model, cache, notes
        self.place, self.u = place, uniforms
        self.live = torch.arange(len(logits), device=device)
        self.now = torch.zeros(1, dtype=torch.long, device=device)
        self.token = torch.zeros_like(place)
        self.tokens = torch.full(whole, policy.pad_id, device=device)
        self.columns = {NAMES[0]: self.tokens}
        self.ends = torch.full((len(logits),), limit, device=device)  # of all rows
        self.eos = torch.tensor(policy.eos_ids, dtype=torch.long, device=device)
        self.looked = self.longest = 0  # tokens that were looked at, those of the longest row
        self.graph: Graph | None = None  # never holds the rows: a cycle would outlive the rollout
        self.say(logits)

    def say(self, logits: Tensor) -> None:
        """Draw the next token from logits (B, V)."""
        u = None if self.u is None else self.u.index_select(1, self.now)[:, 0]
        barred = self.barred(logits.shape[-1]) if self.policy.min_new_tokens else None
        drawn = draw(self.policy, logits, u, barred)
        for name, new in zip(NAMES, drawn, strict=False):
            if name not in self.columns:
                whole = (*self.tokens.shape, *new.shape[1:])
                self.columns[name] = torch.zeros(whole, dtype=new.dtype, device=new.device)
            self.columns[name].index_put_((self.live, self.now), new)
        self.token.copy_(drawn[0][:, None])
        self.now.add_(1)

    def barred(self, vocabulary: int) -> Tensor:
        """Which tokens (V,) bool are not sampled next: EOS, if it is too early."""
        tokens = torch.arange(vocabulary, device=self.eos.device)
        return torch.isin(tokens, self.eos) & (self.now < self.policy.min_new_tokens)

    def step(self) -> None:
        """Read the newest token, and draw one after it."""
        seen = self.cache.advance()
        self.place.add_(1)
        logits = self.model(
            input_ids=self.token, attention_mask=seen, position_ids=self.place,
            past_key_values=self.cache.cache, use_cache=True,
        ).logits[:, -1]  # fmt: skip
        self.say(logits)

    def fit(self, left: int, block: int) -> Step:
        """The step, after making room for `block` more tokens and removing ended rows."""
        rows, unit = len(self.live), self.cache.unit
        size = min(rows, -(-left // unit) * unit) if left <= self.cache.leave * rows else rows
        fewer = size < rows
        if fewer:
            over = self.ends[self.live] <= self.looked
            keep = over.byte().argsort(stable=True)[:size]
            self.cache.keep(keep)
            self.live, self.place, self.token = self.live[keep], self.place[keep], self.token[keep]
            self.u = None if self.u is None else self.u[keep]
        if not isinstance(self.cache, Fixed):
            return self.step
        if self.cache.reserve(block) or fewer or self.graph is None:
            self.graph = Graph(self.live.device, self.notes)
        return partial(self.graph, self.step)

    def look(self, length: int) -> int:
        """The number of rows that continue after `length` tokens. The host waits only here."""
        before, self.looked = self.looked, length
        hit = (self.tokens[self.live, before:length, None] == self.eos).any(-1)  # (B, new)
        end = torch.where(hit.any(1), before + 1 + hit.byte().argmax(1), self.ends[self.live])
        end = end.minimum(self.ends[self.live])
        if self.policy.stops:
            end = self._stopped(end, before)
        self.ends[self.live] = end
        left, self.longest = torch.stack([(end > length).sum(), self.ends.max()]).tolist()
        return left

    def _stopped(self, end: Tensor, before: int) -> Tensor:
        """`end` (B,), or where a row's text completes a stop before: on the host."""
        tokenizer, stops = self.policy.tokenizer, self.policy.stops
        start = max(0, before + 1 - reach(stops))
        given = torch.cat([end[:, None], self.tokens[self.live, start : self.looked]], 1).tolist()
        ends = []
        for last, *ids in given:
            tokens, new = ids[: last - start], min(last, self.looked) - before
            stop = first_stop(tokenizer, tokens, new, stops) if new > 0 else None
            ends.append(last if stop is None else start + stop)
        if ends == [row[0] for row in given]:
            return end
        return torch.tensor(ends, device=end.device)


def draw(
    policy: Policy, logits: Tensor, u: Tensor | None, barred: Tensor | None = None
) -> tuple[Tensor, ...]:
    """(token, its log-probability under the sampling distribution and under the policy, the
    policy's entropy), each (B,): where the cumulative distribution of logits (B, V) passes u (B,);
    without u, the argmax. With `replay`, the policy is what sampling kept, and (B, K) bits of that
    are a fifth column. barred: tokens (V,) bool that are not sampled."""
    most = max(1, HELD // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    if len(logits) > most:
        rows = [slice(i, i + most) for i in range(0, len(logits), most)]
        parts = (draw(policy, logits[r], None if u is None else u[r], barred) for r in rows)
        return tuple(torch.cat(x) for x in zip(*parts, strict=True))
    logits = wide(logits)
    logits = logits if policy.temperature == 1.0 else logits / policy.temperature
    if u is None or barred is not None or policy.top_k > 0 or policy.top_p < 1:
        log_pi = logits.log_softmax(-1)  # (B, V)
        log_mu = log_pi
        if barred is not None:
            log_mu = log_pi.masked_fill(barred, -torch.inf).log_softmax(-1)
        if u is not None:
            log_mu = truncate(log_mu, policy.top_k, policy.top_p)
        token = log_mu.argmax(-1) if u is None else pick(log_mu.exp(), u)
        kept: tuple[Tensor, ...] = ()
        if policy.replay and u is not None:
            kept, log_pi = (packed(log_mu > -torch.inf),), log_mu
        entropy = -torch.linalg.vecdot(log_pi.exp(), log_pi.clamp(min=LEAST))
        chosen = (x.gather(1, token[:, None])[:, 0] for x in (log_mu, log_pi))
        return token, *chosen, entropy, *kept
    p = logits.softmax(-1)
    token = pick(p, u)
    of_token, logit = (x.gather(1, token[:, None])[:, 0] for x in (p, logits))
    log_p = of_token.log()
    # H = log Z - sum p z: log p of all tokens is not needed.
    entropy = logit - log_p - torch.linalg.vecdot(p, logits.clamp(min=LEAST))
    return token, log_p, log_p, entropy


def pick(p: Tensor, u: Tensor) -> Tensor:
    """The index (B,) at which the running sum of p (B, V) passes u (B,) of the whole sum; never
    one where p is 0.

    A block first, then within it: float64 running sums over all of p cost as much as the softmax.
    """
    width = p.shape[1] if p.shape[1] <= BLOCK else BLOCK
    blocks = (F.pad(p, (0, -p.shape[1] % width)) if p.shape[1] % width else p).view(
        len(p), -1, width
    )
    sums = blocks.sum(-1).double()
    block, left = _passes(sums, u.double() * sums.sum(1))
    inner = blocks[torch.arange(len(p), device=p.device), block].double()
    # The block's own sum was rounded: what is left is a share of it.
    share = left / sums.gather(1, block[:, None])[:, 0]
    index, _ = _passes(inner, share * inner.sum(1))
    return (block * width + index).clamp(max=p.shape[1] - 1)


def _passes(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first index (B,) at which the running sum of x (B, N) is above `target` (B,), and the
    rest of the target there."""
    sums = x.cumsum(1)
    # At most just below the end: rounding must not step over the last entry above 0.
    target = target.minimum(sums[:, -1].nextafter(sums.new_zeros(())))
    index = torch.searchsorted(sums, target[:, None], right=True).clamp(max=x.shape[1] - 1)
    return index[:, 0], target - (sums - x).gather(1, index)[:, 0]


def truncate(log_pi: Tensor, top_k: int, top_p: float) -> Tensor:
    """log pi (B, V) restricted to the top k and then to the nucleus of mass p, as in transformers
    and vLLM, and renormalised."""
    if top_k <= 0 and top_p >= 1:
        return log_pi
    ordered, index = log_pi.sort(-1, descending=True)
    if top_k > 0:
        ordered[:, top_k:].fill_(-torch.inf)
    if top_p < 1:  # the token that passes p stays
        p = ordered.softmax(-1)
        ordered = ordered.masked_fill(p.cumsum(-1) - p >= top_p, -torch.inf)
    return torch.empty_like(log_pi).scatter_(-1, index, ordered.log_softmax(-1))
