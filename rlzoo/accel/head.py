"""The log-prob head: computes log pi, entropy and sums of pi squared from hidden states.

A plain head holds logits, log-softmax and their gradients, each (positions, V), in float32. Here
positions go through in chunks, softmax is done in place, and the backward pass is written out:

    d log pi(a) / d logit_j = [j = a] - p_j          d H / d logit_j = -p_j (log p_j + H)

so that memory for logits stays below `rlzoo.accel.passes.room` for any batch and vocabulary.

A logit may be -inf, where a model switches a token off: then p is 0, and so is p log p.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlzoo.accel import passes
from rlzoo.accel.hf_internals import linear

LEAST = -1000.0  # exp of it is 0 even in float64: for products of p and log p, instead of -inf


class How(NamedTuple):
    """Options of `log_prob_stats`."""

    temperature: float
    softcap: float | None
    want: Collection[str]
    entropy_grad: bool
    accumulate: bool


def log_prob_stats(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    ids: Tensor,
    temperature: float = 1.0,
    softcap: float | None = None,
    *,
    kept: Tensor | None = None,
    want: Collection[str] = (),
    entropy_grad: bool = False,
    accumulate: bool = False,
) -> dict[str, Tensor]:
    """`log_probs` (N,) of tokens `ids` (N,) under softmax(logits / temperature), logits =
    hidden (N, H) @ weight (V, H)^T + bias (V,); and `entropy`, `sum_pi_squared` (N,) if in `want`.

    softcap: c where the model takes c tanh(logits / c) for its logits (Gemma 2, arXiv:2408.00118).
    kept: (N, K) the tokens over which softmax is taken, see `packed`; None: all.
    Gradients flow to hidden, weight and bias from log_probs, and from entropy if `entropy_grad`;
    sum_pi_squared does not have a gradient. accumulate: the backward pass adds to `weight.grad` in
    place if there is one, instead of making another tensor of that size; only for `backward()`.
    The output is float32 for half precision, otherwise it has the dtype of `hidden`.
    """
    device = hidden.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else weight.dtype
    hidden, weight = hidden.to(dtype), weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    how = How(temperature, softcap, want, entropy_grad, accumulate)
    with torch.autocast(device, enabled=False):
        made = _Head.apply(hidden, weight, bias, ids, kept, how)
    out = dict(zip(("log_probs", "entropy", "sum_pi_squared"), made, strict=True))
    return {name: out[name] for name in ("log_probs", *want)}


def packed(kept: Tensor) -> Tensor:
    """Booleans (..., V) as bits (..., K) uint8, K = V / 8 rounded up: token v is bit v % 8 of byte
    v // 8."""
    bits = torch.nn.functional.pad(kept.byte(), (0, -kept.shape[-1] % 8)).unflatten(-1, (-1, 8))
    return (bits << _BITS.to(kept.device)).sum(-1, dtype=torch.uint8)


def unpacked(bits: Tensor, vocabulary: int) -> Tensor:
    """Booleans (..., V) of `packed` bits (..., K); without any bit, all: an observation's token."""
    bits = torch.where((bits != 0).any(-1, keepdim=True), bits, 255)
    return (bits[..., None] >> _BITS.to(bits.device) & 1).bool().flatten(-2)[..., :vocabulary]


_BITS = torch.arange(8, dtype=torch.uint8)


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float,
    softcap: float | None, kept: Tensor | None,
) -> Tensor:  # fmt: skip
    """(N, V) over the temperature, in float32 or wider, -inf where a token was not kept; no other
    object holds them, so that the caller may work in place."""
    logits = wide(linear(hidden, weight, bias))
    if softcap is not None:
        logits.div_(softcap).tanh_().mul_(softcap)
    if kept is not None:
        logits.masked_fill_(~unpacked(kept, logits.shape[1]), -torch.inf)
    return logits if temperature == 1.0 else logits.div_(temperature)


def wide(x: Tensor) -> Tensor:
    """x in float32 if it has half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor,
        kept_tokens: Tensor | None, how: How,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        n = len(hidden)
        room = passes.room(hidden.device)
        # Positions whose logits are in memory, and those of them that are processed at a time.
        rows, step = (max(1, size // len(weight)) for size in (room.logits, room.block))
        log_probs, h, squared = (wide(hidden.new_zeros(n)) for _ in range(3))
        ctx.kept, ctx.rows, ctx.how = None, rows, how
        # p of the only chunk: the backward pass need not make it again.
        keep = n <= rows and any(ctx.needs_input_grad[:3])
        keep = keep and not how.entropy_grad and how.softcap is None
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            bits = None if kept_tokens is None else kept_tokens[part]
            logits = _logits(hidden[part], weight, bias, how.temperature, how.softcap, bits)
            for first in range(start, min(start + rows, n), step):  # in the cache, and in place
                block = slice(first, min(first + step, start + rows))
                log_p = logits[first - start : block.stop - start]
                log_p.sub_(log_p.logsumexp(-1, keepdim=True))
                log_probs[block] = log_p.gather(1, ids[block, None])[:, 0]
                if not (how.want or keep):
                    continue
                p = log_p.exp()
                if "entropy" in how.want:
                    h[block] = -torch.linalg.vecdot(p, log_p.clamp_(min=LEAST))
                if "sum_pi_squared" in how.want:
                    squared[block] = torch.linalg.vecdot(p, p)
                if keep:
                    log_p.copy_(p)
            ctx.kept = logits if keep else None
            del logits, log_p  # before the next chunk's are made
        entropy = h if how.entropy_grad else None
        ctx.save_for_backward(hidden, weight, bias, ids, kept_tokens, entropy)
        ctx.mark_non_differentiable(squared, *([] if how.entropy_grad else [h]))
        return log_probs, h, squared

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_log_prob, d_entropy, _ = gradients
        how: How = ctx.how
        hidden, weight, bias, ids, kept_tokens, entropy = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None  # worked on in place: a second backward makes it again
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad = weight.grad if how.accumulate and weight.is_leaf else None
        there = grad is not None and not grad.is_sparse
        d_weight = grad if there else None
        d_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for start in range(0, len(hidden), ctx.rows):
            part = slice(start, start + ctx.rows)
            g = d_log_prob[part, None]
            if kept is not None:
                d_logits = kept.mul_(-g)
            else:
                # Logits, then log p, then the gradient, in place: no second chunk is held.
                bits = None if kept_tokens is None else kept_tokens[part]
                d_logits = _logits(hidden[part], weight, bias, how.temperature, how.softcap, bits)
                if how.softcap is not None:  # d c tanh(x / c) / dx
                    slope = 1 - (d_logits * (how.temperature / how.softcap)).square_()
                d_logits.sub_(d_logits.logsumexp(-1, keepdim=True))
                if how.entropy_grad:
                    p = d_logits.exp()
                    outer = d_entropy[part, None]
                    # -p (g + outer (log p + H))
                    d_logits.clamp_(min=LEAST)
                    d_logits.add_(entropy[part, None]).mul_(outer).add_(g).mul_(p).neg_()
                    del p
                else:
                    d_logits.exp_().mul_(-g)
            d_logits.scatter_add_(1, ids[part, None], g.to(d_logits.dtype))
            if how.temperature != 1.0:
                d_logits.div_(how.temperature)
            if how.softcap is not None:
                d_logits.mul_(slope)
            d_logits = d_logits.to(weight.dtype)
            if d_hidden is not None:
                torch.mm(d_logits, weight, out=d_hidden[part])
            if ctx.needs_input_grad[1]:
                if d_weight is None:
                    d_weight = d_logits.t() @ hidden[part]
                else:
                    d_weight.addmm_(d_logits.t(), hidden[part])
            if d_bias is not None:
                d_bias.add_(d_logits.sum(0))
            del d_logits
        if d_weight is None and ctx.needs_input_grad[1]:
            # No row: ranks that share weights reduce the same ones all the same.
            d_weight = torch.zeros_like(weight)
        return d_hidden, None if there else d_weight, d_bias, None, None, None


@torch.no_grad()
def full_kl(
    ours: tuple[Tensor, ...],
    theirs: tuple[Tensor, ...],
    temperature: float = 1.0,
    softcaps: tuple[float | None, float | None] = (None, None),
    kept: Tensor | None = None,
) -> Tensor:
    """KL(ours, theirs) (N,) over the whole vocabulary, or what of it was `kept`, each (hidden (N,
    H), weight, bias); infinite where only theirs switches a token off."""
    n, rows = len(ours[0]), max(1, passes.room(ours[0].device).logits // len(ours[1]))
    kl = [ours[0].new_zeros(0)]
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        bits = None if kept is None else kept[part]
        log_p, log_q = (
            _logits(hidden[part], weight, bias, temperature, softcap, bits).log_softmax(-1)
            for (hidden, weight, bias), softcap in zip((ours, theirs), softcaps, strict=True)
        )
        kl.append(divergence(log_p, log_q))
        del log_p, log_q
    return torch.cat(kl)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p, q) (...) from log-probs (..., V), of which `log_p` is overwritten."""
    p = log_p.exp()
    return torch.linalg.vecdot(p, log_p.sub_(log_q).masked_fill_(p == 0, 0))
