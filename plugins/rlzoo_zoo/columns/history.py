"""The mean past reward of each prompt (SPO): a baseline that needs neither group nor critic."""

import hashlib
from typing import Annotated

import torch

from rlzoo import Range, component


def check(*, least, most, **_):
    if least > most:
        raise ValueError(f"least must not exceed most. Got {least} and {most}")


@component("column", shape="B", check=check)
def history(
    policy,
    memory,
    prompts,
    prompt_ids,
    prompt_mask,
    response_ids,
    response_mask,
    response_attention,
    old_log_probs,
    sequence_scores,
    *,
    start: Annotated[float, Range(), "initial v of a new prompt"] = 0.5,
    weight: Annotated[float, Range(0), "initial N of a new prompt, in responses"] = 1.0,
    half: Annotated[float, Range(0, closed="neither"), "drift that halves N, in nats"] = 0.06,
    least: Annotated[float, Range(0, 1), "of rho"] = 0.875,
    most: Annotated[float, Range(0, 1), "of rho"] = 0.96,
    rows: Annotated[int, Range(1), "of one pass"] = 32,
):
    """v of each row's prompt before this step, (B,), in units of the reward.

    The step then makes N' = rho N + k and v' = (rho N v + sum R) / N', where R are the k
    `sequence_scores` (B,) of the prompt's rows. This is the mean a / (a + b) of a Beta(a, b) with
    decaying counts, N = a + b, generalized to any reward. rho = 2^(-D / half), clamped to [least,
    most]. D is the mean of abs(log pi - log mu) over the actions of the prompt's last response,
    where pi is the current policy and log mu are the `old_log_probs` of that response; D is 0 on a
    first visit. D costs a pass over those responses, `rows` at a time, and `memory` keeps them for
    each prompt's text, so that checkpoints grow. With least = most, rho is constant: there is no
    pass, and no response is kept. Differences from the authors: all rows of a prompt count instead
    of one; D is measured between rollouts instead of after updates; a new prompt starts with
    Beta(1/2, 1/2) instead of 8 responses drawn before training. It fails when prompts do not recur:
    v stays at `start`.
    Source: Xu and Ding 2025, arXiv:2509.13232; their code, verl-recipe, spo_ray_trainer.py.
    """
    seen = memory.setdefault("history", {})
    keys = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in prompts]
    before = [seen[key][0] if key in seen else start for key in keys]
    found = sequence_scores.new_tensor(before)
    own: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        own.setdefault(key, []).append(i)
    now = (prompt_ids, prompt_mask, response_ids, response_mask, response_attention, old_log_probs)
    drift: dict[str, float] = {}
    kept = [key for key in own if len(seen.get(key, ())) > 2]
    for at in range(0, len(kept), rows):
        part = kept[at : at + rows]
        last = [seen[key][2:] for key in part]
        first = torch.tensor([own[key][0] for key in part])
        found_drift = drifts(policy, last, first, *now)
        drift.update(zip(part, found_drift, strict=True))
    scores = sequence_scores.tolist()
    lengths = response_attention.cpu().long().sum(1).tolist()
    last_columns = [x.cpu() for x in (response_ids, response_mask, old_log_probs)]
    for key, mine in own.items():
        v, n, *_ = seen.get(key, [start, weight])
        rho = min(max(2 ** (-drift.get(key, 0.0) / half), least), most)
        total = rho * n + len(mine)
        seen[key] = [(rho * n * v + sum(scores[i] for i in mine)) / total, total]
        if least < most:
            row = mine[-1]
            kept_row = (x[row, : lengths[row]].tolist() for x in last_columns)
            seen[key] += [" ".join(map(repr, x)) for x in kept_row]  # texts: quick to copy
    return found


def drifts(policy, before, first, prompt_ids, prompt_mask, response_ids, mask, attention, like):
    """D of b kept responses (ids, mask, log mu), whose prompts are those of the rows `first`."""
    texts, masks, log_mu = zip(*before, strict=True)
    acts = numbers(masks, mask)
    columns = {
        "prompt_ids": prompt_ids[first],
        "prompt_mask": prompt_mask[first],
        "response_ids": numbers(texts, response_ids),
        "response_mask": acts,
        "response_attention": numbers(["1 " * len(x.split()) for x in texts], attention),
    }
    gap = policy.log_prob_stats(columns)["log_probs"] - numbers(log_mu, like)  # 0 off the mask
    return (gap.abs().sum(1) / acts.sum(1).clamp(min=1)).tolist()


def numbers(texts, like):
    """Texts of numbers as a tensor (b, T), right-padded with 0, of `like`'s dtype and device."""
    lists = [[float(x) for x in text.split()] for text in texts]
    width = max(1, *map(len, lists))
    padded = [one + [0.0] * (width - len(one)) for one in lists]
    return like.new_tensor(padded)
