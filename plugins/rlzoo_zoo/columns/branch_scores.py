"""The remaining scores of K fresh rollouts from the state in which each step begins."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import at_run_start, reward_to_go, run_starts


@component("column", shape="BTK")
def branch_scores(
    sample,
    score,
    tokenizer,
    prompt_ids,
    prompt_mask,
    response_ids,
    response_mask,
    scores,
    branch_steps,
    *,
    rollouts: Annotated[int, Range(1)] = 9,
):
    """(B, T, K): at each token, K draws of the future score from its step's first state.

    From every such state (prompt and response so far, observations included) the policy samples
    `rollouts` times, all states in one batch; each continuation is scored together with what came
    before it, minus the scores already earned there. So each step takes K rollouts, whose tokens
    all count. A continuation is truncated at the recipe's length limit, `sample.max_new_tokens`.
    Source: Kazemnejad et al. 2024, arXiv:2410.01679.
    """
    starts = run_starts(branch_steps, response_mask)
    states = starts.nonzero()
    row, begin = states.repeat_interleave(rollouts, 0).unbind(1)  # (N,), N = states * K
    out = scores.new_zeros(*scores.shape, rollouts)
    if not len(row):
        return out
    limit = getattr(sample, "max_new_tokens", None)
    ids, mask = _prefixes(prompt_ids[row], prompt_mask[row], response_ids[row], begin)
    longest = None if limit is None else limit - int(begin.min())
    drawn = sample(ids, mask, max_new_tokens=longest, of=row)
    whole = _join(response_ids[row], response_mask[row], begin, drawn, limit, tokenizer)
    earned = scores.sum(1)[row] - reward_to_go(scores, response_mask)[row, begin]
    further = score({**whole, "rows": row}).to(scores.dtype) - earned
    out[states.unbind(1)] = further.view(-1, rollouts)
    return torch.stack([at_run_start(x, starts) for x in out.unbind(2)], 2)


def _prefixes(prompt_ids, prompt_mask, response_ids, begin):
    """Prompt and the response before `begin` (N,), moved to the right end: (ids, mask) (N, W)."""
    ids = torch.cat([prompt_ids, response_ids], 1)
    start = prompt_ids.shape[1]
    width = start + int(begin.max())
    source = torch.arange(width, device=ids.device) - (width - start - begin)[:, None]
    known = torch.nn.functional.pad(prompt_mask, (0, response_ids.shape[1]), value=1)
    mask = torch.where(source >= 0, known.gather(1, source.clamp(min=0)), 0)
    return torch.where(mask.bool(), ids.gather(1, source.clamp(min=0)), 0), mask


def _join(response_ids, response_mask, begin, drawn, limit, tokenizer):
    """Responses of `begin` (N,) old tokens and the drawn ones after them, cut at `limit`."""
    length = drawn["response_attention"].long().sum(1)  # an environment's answers count, too
    room = length if limit is None else (limit - begin).clamp(min=0)
    cut = length > room
    end = begin + torch.minimum(length, room)
    place = torch.arange(int(end.max()), device=begin.device).expand(len(begin), -1)
    old = place < begin[:, None]
    live = place < end[:, None]

    def merge(before, after):
        width = before.shape[1]
        kept = before.gather(1, place.clamp(max=width - 1))
        new = after.gather(1, (place - begin[:, None]).clamp(0, after.shape[1] - 1))
        return torch.where(live, torch.where(old, kept, new.to(kept.dtype)), 0)

    ids = merge(response_ids, drawn["response_ids"])
    terminated = drawn["terminated"].bool() & ~cut
    whole = {
        "response_ids": ids,
        "response_mask": merge(response_mask, drawn["response_mask"]),
        "response_attention": live.to(response_mask.dtype),
        "terminated": terminated,
        "truncated": drawn["truncated"].bool() | cut,
    }
    if "turns" in drawn:  # a conversation's rows continue from their beginning
        return whole | {"turns": drawn["turns"], "responses": drawn["responses"]}
    from rlzoo.lm import decoded  # here: it imports torch's models

    texts = [  # without the EOS that ended it, as the rollout's own `responses`
        x[: n - int(ended)]
        for x, n, ended in zip(ids.tolist(), end.tolist(), terminated.tolist(), strict=True)
    ]
    return whole | {"responses": decoded(tokenizer, texts)}
