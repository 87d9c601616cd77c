"""Splits rows into forward passes, as many at a time as memory has room for, and lays them out.

Neither changes the results or the gradients. Rows of a pass are side by side, padded, or in one
line in which what several of them begin with is once: but for attention, a layer works on single
positions. The host computes the layout.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from rlzoo.accel.ranks import ALONE, Ranks
from rlzoo.errors import out_of_memory
from rlzoo.mdp.batch import take
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.keys import Train

T = TypeVar("T")
Policy = Any  # `rlzoo.lm.policy.Policy`, which imports this module

USUAL = 2**34  # bytes free on a device that does not report them
MAPPED = 2**25  # bytes of a tensor on a CPU that glibc always requests from the system


@dataclass(frozen=True)
class Room:
    """activations: bytes of them in a pass. kept: in all passes of an update, where these wait for
    the losses. logits: how many are held at a time, in float32. block: how many of those are worked
    on at a time. positions: a pass may always have this many: with fewer, reading the weights
    dominates.
    """

    activations: int
    kept: int
    logits: int
    block: int
    positions: int = 1


CPU = Room(activations=2**27, kept=2**27, logits=2**25, block=2**20, positions=220)


def room(device: Any, free: int | None = None) -> Room:
    """The memory that a pass may use on a device (a torch.device or its type).

    Off the CPU half of the `free` bytes (measured where they are not given) is for activations,
    and a sixteenth for logits, of which up to three copies are made: in one block, since each
    operation is a launch. Only the two leading bits of `free` count, so that a resumed run with
    slightly different free memory splits its rows as before.
    """
    if getattr(device, "type", device) == "cpu":
        return CPU
    free = free_bytes(device) if free is None else free
    spare = max(0, free.bit_length() - 2)
    free = free >> spare << spare
    return Room(free // 2, free // 2, free // 64, free // 64)


def free_bytes(device: Any) -> int:
    """The memory available for new tensors on this device, with what torch's allocator holds but
    does not use."""
    if getattr(device, "type", device) != "cuda":
        return USUAL
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def make_room(like: Any) -> None:
    """Before a tensor as large as `like` is made on a CPU: the system gets back what was freed, if
    glibc would hold it next to such a tensor."""
    if like.device.type == "cpu" and like.nbytes >= MAPPED and sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others have none
        if trim is not None:
            trim(0)


# ---------------------------------------------------------------- layout

CUT = 4  # responses of a unit are at least this many times as long as its prompt: see `_units`


class Packed(NamedTuple):
    """rows: (R, longest), where a row's tokens are in the line. back: (L,), where in these rows
    laid flat each token of the line is."""

    rows: Tensor
    back: Tensor


class Aligned(NamedTuple):
    """Tokens as the model reads them.

    Either each row is separate, prompt followed by response and padding: causal attention then
    needs no mask, and positions count from 0. Or all in one line, N = 1, in which what several rows
    begin with is once, and nothing is padded. Attention then takes the rows out of the line, except
    those that are others' beginnings (`rlzoo.accel.hf_internals.attend`).

    ids: (N, L). at: (R, T + 1) where response token t is chosen, and after the last, in the last
    `keep` positions of ids laid flat; T: the longest response. place: (1, L), the positions in a
    line. line: where a line's rows are; None for rows by themselves.
    """

    ids: Tensor
    at: Tensor
    keep: int
    place: Tensor | None = None
    line: Packed | None = None
    longest: int = 0  # tokens of the longest row, prompt and response


def align(columns: Mapping[str, Tensor], *, trees: bool = False) -> Aligned:
    """Lay out rows; `trees`: what several rows begin with is read once, if that saves a tenth of
    the positions."""
    device = columns["response_ids"].device
    p, n = lengths(columns)
    ids, inside = _side_by_side(columns)
    width, length = int(n.max()), ids.shape[1]
    keep = length - int(p.min()) + 1
    last = (p[:, None] - 1 + torch.arange(width + 1)).clamp(max=length - 1)
    at = torch.arange(len(p))[:, None] * keep + last - (length - keep)
    rows = Aligned(ids, at, keep, longest=length)
    if trees and (shared := _shared(ids, inside)):
        order, new = shared
        to = (new.flatten().cumsum(0).view_as(new) - 1).where(new, 0)
        to = to.t().contiguous().cummax(1).values.t()  # as in the row before; padding is never read
        fresh = new.any(1)  # other rows are like one before them, or the beginning of one
        packed = Packed(to[fresh], new[fresh].flatten().nonzero()[:, 0])
        at, places = to[order.argsort()].gather(1, last), (packed.back % length)[None]
        rows = Aligned(ids[order][new][None], at, len(packed.back), places, packed, length)
    if device.type == "cpu":
        return rows
    place = None if rows.place is None else rows.place.to(device)
    line = None if rows.line is None else Packed(*(x.to(device) for x in rows.line))
    return rows._replace(ids=rows.ids.to(device), at=rows.at.to(device), place=place, line=line)


def _side_by_side(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Prompt and response of each row without a gap, (R, longest), and which are not padding; in
    the host's memory."""
    p, n = lengths(columns)
    step = torch.arange(int((p + n).max()))
    ids = torch.cat([columns["prompt_ids"].cpu(), columns["response_ids"].cpu()], 1)
    start = (columns["prompt_mask"].shape[1] - p)[:, None]  # prompts are padded on the left
    return ids.gather(1, (start + step).clamp(max=ids.shape[1] - 1)), step < (p + n)[:, None]


def _shared(ids: Tensor, inside: Tensor) -> tuple[Tensor, Tensor] | None:
    """An order (R,) in which rows that begin alike follow each other, and which of a row's tokens,
    (R, longest) in this order, no row before it has after the same tokens. None if these are more
    than nine tenths."""
    ids = ids.masked_fill(~inside, -1)
    keys = [row.tobytes() for row in ids.numpy()]
    order = torch.tensor(sorted(range(len(keys)), key=keys.__getitem__), dtype=torch.long)
    ids, new = ids[order], inside[order]
    new[1:] &= (ids[1:] != ids[:-1]).cumsum(1) > 0
    return None if int(new.sum()) > 0.9 * int(inside.sum()) else (order, new)


def lengths(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens of prompts and of responses, (R,) int64, in the host's memory."""
    prompt, response = columns["prompt_mask"], columns["response_attention"]
    return prompt.cpu().long().sum(1), response.cpu().long().sum(1)


def pack(columns: Mapping[str, Tensor], budget: int, *, trees: bool = False) -> list[Tensor]:
    """Rows (R,) of each pass: of similar length and at most `budget` positions with padding, unless
    a single row or unit (see `_units`) has more. A pass that holds a quarter of the budget ends
    before more than a twentieth of it is padding; a line is never padded. trees: as for `align`."""
    p, n = lengths(columns)
    line = _shared(*_side_by_side(columns)) if trees and len(p) else None
    unit, size = _units(p, n, budget, *line) if line else (torch.arange(len(p)), p + n)
    order = size.argsort(descending=True, stable=True)
    starts: list[int] = []
    width = real = full = 0  # the longest, and the positions so far, without padding and with it
    for i, positions in enumerate(size[order].tolist()):
        wide = positions if line else width
        padded = full >= budget / 4 and real + positions < 0.95 * (full + wide)
        if not starts or full + wide > budget or padded:
            starts.append(i)
            width = wide = max(1, positions)
            real = full = 0
        real, full = real + positions, full + wide
    place = order.argsort()[unit]
    part = torch.bucketize(place, torch.tensor(starts, dtype=torch.long), right=True)
    return list(place.argsort(stable=True).split(part.bincount()[1:].tolist()))


def _units(p: Tensor, n: Tensor, budget: int, order: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The unit of each row (R,) and the positions of each unit, which one pass reads whole: all
    rows of one prompt. A unit of more than `budget` positions is cut, but not before its responses
    are `CUT` times as long as the prompt, which is read again. p, n: of `lengths`; order, new: of
    `_shared`.
    """
    unit = torch.zeros_like(p)
    sizes: list[int] = []
    rows = torch.stack([order, new.sum(1), p[order], n[order]], 1)
    for row, more, prompt, response in rows.tolist():
        if more > response or sizes[-1] + more > max(budget, (1 + CUT) * prompt):
            sizes.append(0)
            more = prompt + response
        sizes[-1] += more
        unit[row] = len(sizes) - 1
    return unit, torch.tensor(sizes)


# ---------------------------------------------------------------- passes


@dataclass(frozen=True)
class Traits:
    """Abilities of a model's passes, by trials (`rlzoo.lm.probe`); the defaults suit any.

    plain_head: the logits come from a linear head followed by nothing except a soft cap. no_trees:
    why what rows begin with is not read once; empty if it is. pads: prompts of unequal
    length are sampled together. sampled_as_scored: the log-probs of sampling equal a pass's.
    """

    plain_head: bool = False
    no_trees: str = "not tried"
    pads: bool = True
    sampled_as_scored: bool = True


@dataclass
class Passes:
    """train: the recipe's section.

    collective: weights are spread over ranks, so that all of them make every pass together.
    notes: gain a line when memory runs out.
    scale: the share of a pass's usual size that fits into memory.
    """

    train: Train
    ranks: Ranks = ALONE
    collective: bool = False
    notes: list[str] = field(default_factory=list)
    scale: float = 1.0

    def parts(self, policy: Policy, columns: Columns, *, grad: bool = False) -> list[Tensor]:
        """The rows (R,), of the host's, of each pass of `policy` over `columns`: sorted by length,
        as many as fit into the device's `room`."""
        if grad and self.train.microbatch:
            order = pack(columns, 1)
            size = max(1, int(self.train.microbatch * self.scale))
            return list(torch.cat(order).split(size)) if order else []
        given = room(policy.device)
        most = max(given.positions, given.activations // policy.bytes_of_position[grad])
        budget = int(most * self.scale)
        if self.ranks.count > 1:  # something to do for each
            positions = sum(int(x.sum()) for x in lengths(columns))
            budget = min(budget, positions // self.ranks.count)
            if policy.device.type != "cpu":  # they may not have the same memory free
                budget = min(self.ranks.gather(budget))
        parts = pack(columns, max(1, budget), trees=not policy.traits.no_trees)
        # A single pass keeps the order of its rows: nothing need be sorted back.
        return [torch.arange(len(parts[0]))] if len(parts) == 1 else parts

    def to_keep(self, policy: Policy, columns: Columns) -> list[Tensor]:
        """The rows of each pass of an update, if all passes may be held at once. None of them if
        memory ran out before."""
        parts = self.parts(policy, columns, grad=True)
        if len(parts) == 1:
            return parts
        positions = sum(int(x.sum()) for x in lengths(columns))
        fits = positions * policy.bytes_of_position[True] <= room(policy.device).kept
        return parts if fits and self.scale == 1 else []

    def map(
        self,
        policy: Policy,
        columns: Columns,
        function: Callable[[Columns], Mapping[str, Tensor]],
    ) -> Mapping[str, Tensor]:
        """`function` of all rows, tensors (B, ...) by name, in as many passes as memory needs."""
        return self.retry(lambda: self.over(columns, self.parts(policy, columns), function))

    def over(
        self,
        columns: Columns,
        parts: list[Tensor],
        function: Callable[[Columns], Mapping[str, Tensor]],
    ) -> Mapping[str, Tensor]:
        """`function` of all rows, tensors (B, ...) by name, a pass for each of `parts`; ranks share
        them. A single part has all rows in their order."""
        if len(parts) == 1:
            return function(columns)
        count = self.ranks.count
        done = [function(take(columns, part)) for part in parts[self.ranks.index :: count]]
        if count > 1:
            if self.collective and self.ranks.idle(len(parts)):
                function(take(columns, parts[0]))
            shares = self.ranks.gather([{n: x.cpu() for n, x in out.items()} for out in done])
            device = columns["response_ids"].device
            done = [{n: x.to(device) for n, x in out.items()} for share in shares for out in share]
            parts = [part for i in range(count) for part in parts[i::count]]
        back = torch.cat(parts).argsort()
        return {name: torch.cat([out[name] for out in done])[back] for name in done[0]}

    def retry(self, attempt: Callable[[], T], release: Callable[[], None] = lambda: None) -> T:
        """The result of `attempt`. If memory runs out, halve the pass size and try again.

        release: frees what was kept for the attempt and can be recomputed.
        """
        try:
            return attempt()
        except RuntimeError as error:
            # Ranks would no longer agree on who does which pass.
            if not out_of_memory(error) or self.scale < 1 or self.ranks.count > 1:
                raise
        # Not in `except`: there the traceback holds on to what the failed pass allocated.
        self.scale = 0.5
        release()
        self.notes.append("out of memory; continuing with half the rows per pass (same gradient)")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return attempt()
