"""A learned reward per step: a token classifier scores a response at the end of each step."""

from functools import lru_cache
from typing import Annotated, Literal

import torch

from rlzoo import Range, component, reward_models


def check(*, path, device, separator, **_):
    if separator == "":
        raise ValueError("separator is empty; set the text that ends each step")
    reward_models.ProcessRewardModel.check(path, device)


@component("reward", check=check)
def process_reward_model(
    prompts,
    messages,
    responses,
    response_tokens,
    response_mask,
    *,
    path: Annotated[str, "a folder written by `rlzoo model reward --per-step`, or a hub id"] = "",
    separator: Annotated[str | None, "after each step; null: as in the model's training"] = None,
    form: Annotated[Literal["step", "min"], "the reward of a step"] = "step",
    temperature: Annotated[float, Range(0, closed="neither"), "of form=min"] = 0.1,
    batch: Annotated[int, Range(1), "rows per forward pass"] = 64,
    max_length: Annotated[int | None, Range(2), "tokens read from the start; null: all"] = None,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    device: Annotated[str, "auto: the policy's device"] = "auto",
):
    """The reward of each step, (B, T), at the action that ends it; 0 at all others.

    p_k = P(step k is correct) comes from a frozen transformers token classifier with two labels,
    evaluated at the last token of the separator after the step, as in TRL's PRMTrainer. form=step
    gives p_k, at most 1 per step. form=min gives w_k r_k, with r_k = 2 p_k - 1 and w = softmax(-r /
    temperature) over the response's steps, so that the sum is about the worst step's reward. Pieces
    of white space do not count; a step beyond the model's length limit gets 0; a step whose end is
    not visible in the tokens is rewarded at the last action. The model has its own tokenizer and
    sees only text. An encoder also takes the following text into account. It fails with form=step
    when more steps give more reward, because the policy then learns to continue, and, as every
    learned reward, when the policy leaves the training distribution.
    Source: Lightman et al. 2023, arXiv:2305.20050, for the model; Wang et al. 2023
    (Math-Shepherd), arXiv:2312.08935, rewards each step (based only on summaries); form=min is
    Cheng et al. 2025 (PURE), arXiv:2504.15275, as in the authors' code, without its outcome reward.
    """
    place = response_mask.device if device == "auto" else torch.device(device)
    judge = _loaded(path, str(place), dtype, separator)
    found = judge.probabilities(prompts, messages, responses, max_length=max_length, batch=batch)
    scores = torch.zeros(response_mask.shape)
    places = response_mask.bool().cpu()
    for i, (pieces, texts) in enumerate(zip(found, response_tokens, strict=True)):
        where = places[i].nonzero()[:, 0]
        paid = {k: p for k, p in enumerate(pieces) if p is not None}
        if not paid or not len(where):
            continue
        worth = weighed(torch.tensor(list(paid.values())), form, temperature)
        ends = ends_of(texts, judge.separator)
        for k, x in zip(paid, worth, strict=True):
            scores[i, where[ends[k] if k < len(ends) else -1]] += x
    return scores.to(response_mask.device)


def weighed(p, form, temperature):
    """The rewards of steps (K,) of probabilities p."""
    if form == "step":
        return p
    r = 2 * p - 1
    return (-r / temperature).softmax(0) * r


def ends_of(tokens, separator):
    """Which of the tokens' texts ends the first separator, the second, ..."""
    ends, text, seen = [], "", 0
    for i, token in enumerate(tokens):
        text += token
        while (at := text.find(separator, seen)) >= 0:
            seen = at + len(separator)
            ends.append(i)
    return ends


@lru_cache(maxsize=4)
def _loaded(path, device, dtype, separator):
    key = "rewards.process_reward_model.path"
    return reward_models.ProcessRewardModel(path, device, dtype, separator=separator, key=key)
