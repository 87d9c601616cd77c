"""Holds conversations of all rows at once: a turn of the policy, then the environment's answer."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.mdp import turns
from rlzoo.mdp.batch import left_pad, take
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.plan import Plan

if TYPE_CHECKING:  # transformers
    from rlzoo.lm.policy import Policy


def ahead(uniforms: Tensor, at: Tensor, width: int) -> Tensor:
    """uniforms (R, T) from position `at` (R,) on, (R, width); beyond the end anything. All of the
    host's."""
    place = at[:, None] + torch.arange(width)
    return uniforms.gather(1, place.clamp(max=uniforms.shape[1] - 1))


def converse(
    plan: Plan,
    policy: "Policy",
    talks: list[turns.Conversation],
    prompts: Columns,
    speak: Callable[[Tensor, Columns, Tensor, int], dict[str, Any]],
) -> dict[str, Any]:
    """Complete conversations, one turn of all unfinished rows at a time.

    talks: the rows, with their turns so far. speak(live, prompts, at, width): a sampler's
    columns for the rows `live` (R,), which continue at response position `at` (R,), from prompts
    that end with the turns so far; `width` tokens at most. live and at are the host's.
    """
    rules = turns.Turns(plan, policy.tokenizer, policy.eos_ids)
    texts = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(prompts["prompt_ids"].cpu(), prompts["prompt_mask"].cpu(), strict=True)
    ]
    extra: dict[str, Tensor] = {}  # what the sampler gives as well as tokens: (B, T)
    width = max(talk.limit - talk.begin for talk in talks)
    live = torch.arange(len(talks))
    while len(live):
        speaking = [talks[i] for i in live.tolist()]
        at = torch.tensor([len(talk.ids) - talk.begin for talk in speaking])
        now = take(prompts, live)
        so_far = [texts[i] + talks[i].ids[talks[i].begin :] for i in live.tolist()]
        now["prompt_ids"], now["prompt_mask"] = left_pad(so_far, policy.pad_id, policy.device)
        most = max(talk.limit - len(talk.ids) for talk in speaking)
        if policy.limit:  # one row's history and another's limit: together they may be too much
            most = max(1, min(most, policy.limit[0] - now["prompt_ids"].shape[1]))
        drawn = speak(live, now, at, most)
        responses = drawn.pop("response_ids").tolist()
        taken = torch.tensor(rules.act(speaking, responses))
        for name, x in drawn.items():
            whole = extra.setdefault(name, x.new_zeros(len(talks), width, *x.shape[2:]))
            row, t = (torch.arange(x.shape[1]) < taken[:, None]).nonzero().T
            to, source = (live[row], at[row] + t), (row, t)
            there = tuple(i.to(x.device) for i in to)
            whole[there] = x[tuple(i.to(x.device) for i in source)]
        if not bool(taken.all()):
            raise RlzooError(f"sampler {plan.base_sampler.name!r} returned a row without tokens")
        live = live[torch.tensor([not talk.over for talk in speaking])]
    columns = rules.columns(talks, policy.pad_id, policy.device)
    steps = columns["response_ids"].shape[1]
    return columns | {name: x[:, :steps] for name, x in extra.items()}


def continued(
    longest: int,
    columns: Columns,
    prompts: Mapping[str, Tensor],
    rows: Tensor | None,
    limit: int,
) -> list[turns.Conversation]:
    """The conversations that continue after some prompts (N, W), each the beginning of a row.
    longest: tokens of a response."""
    every = torch.arange(len(prompts["prompt_ids"]))
    read = ("prompt_ids", "prompt_mask", "response_ids")
    prompts = {n: x.cpu() for n, x in prompts.items() if n in read}
    columns = {n: x.cpu() if n in read else x for n, x in columns.items()}
    talks = []
    for i, row in enumerate((every if rows is None else rows).tolist()):
        given = prompts["prompt_ids"][i][prompts["prompt_mask"][i].bool()].tolist()
        known = columns["prompt_ids"][row][columns["prompt_mask"][row].bool()].tolist()
        at = len(given) - len(known)
        if at > 0 and "turn_ids" in columns:
            known += columns["response_ids"][row, :at].tolist()
        if given != known:
            raise RlzooError(
                f"sample: in a conversation, prompt {i} must be the beginning of row {row} of the "
                "batch; give its row with of=..."
            )
        if at > 0:
            talks.append(turns.resume(columns, row, at, min(longest, at + limit)))
        else:
            talks.append(turns.begin(columns, row, limit))
    return talks
