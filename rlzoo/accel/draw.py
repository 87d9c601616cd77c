"""Draws tokens from logits: temperature, truncation, tokens that are not sampled, inverse CDF."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from rlzoo.plugin.protocols import Tokenizer

BLOCK = 512  # tokens of the vocabulary, of which a draw looks at the sum before it looks at each


class Sampled(Protocol):
    """The part of a policy (`rlzoo.lm.policy`) used here: how to sample from it."""

    @property
    def model(self) -> Any: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def eos_ids(self) -> list[int]: ...
    @property
    def min_new_tokens(self) -> int: ...
    @property
    def pad_id(self) -> int: ...
    @property
    def stops(self) -> tuple[str, ...]: ...
    @property
    def pads(self) -> bool: ...
    def adapted(self) -> AbstractContextManager: ...
    def precision(self) -> AbstractContextManager: ...


def draw(
    policy: Sampled, logits: Tensor, u: Tensor | None, barred: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability under the sampling distribution and under the policy), each (B,):
    where the cumulative distribution of logits (B, V) passes u (B,); without u, the argmax.
    barred: tokens (V,) bool that are not sampled."""
    logits = wide(logits)
    logits = logits if policy.temperature == 1.0 else logits / policy.temperature
    if u is None or barred is not None or policy.top_k > 0 or policy.top_p < 1:
        log_pi = logits.log_softmax(-1)  # (B, V)
        log_mu = log_pi
        if barred is not None:
            log_mu = log_pi.masked_fill(barred, -torch.inf).log_softmax(-1)
        if u is not None:
            log_mu = truncate(log_mu, policy.top_k, policy.top_p)
        token = (log_mu.argmax(-1) if u is None else pick(log_mu.exp(), u))[:, None]
        return token[:, 0], log_mu.gather(1, token)[:, 0], log_pi.gather(1, token)[:, 0]
    p = logits.softmax(-1)
    token = pick(p, u)
    log_pi = p.gather(1, token[:, None]).log()[:, 0]
    return token, log_pi, log_pi


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


def wide(x: Tensor) -> Tensor:
    """x in float32 if it has half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
