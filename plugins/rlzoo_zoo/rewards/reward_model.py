"""A learned reward: a sequence classifier with one label reads the prompt and the response."""

from functools import lru_cache
from typing import Annotated, Literal

import torch

from rlzoo import Range, component, reward_models


def check(*, path, batch, max_length, dtype, device):
    reward_models.RewardModel.check(path, device)


@component("reward", check=check)
def reward_model(
    prompts,
    messages,
    responses,
    terminated,
    *,
    path: Annotated[str, "a folder written by `rlzoo model reward`, or a hub id"] = "",
    batch: Annotated[int, Range(1), "rows per forward pass"] = 64,
    max_length: Annotated[int | None, Range(2), "tokens read from the end; null: all"] = None,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    device: Annotated[str, "auto: the policy's device"] = "auto",
):
    """r(prompt, response), (B,), from a frozen transformers sequence classifier with one label.

    The model has its own tokenizer. With a chat template, it reads the messages through the
    template; without one, it reads the prompt's text, the response and, if the row terminated, EOS.
    An encoder (BERT, RoBERTa) reads the two as its tokenizer's pair. A text that is too long loses
    its beginning, except BOS. Padding does not change the score. Scores are unbounded and have any
    scale; use `weight` to scale them. It fails when the policy leaves the distribution of the
    preferences: the score then rises while the quality falls; use `kl` to prevent this.
    Source: Ouyang et al. 2022, arXiv:2203.02155; Stiennon et al. 2020, arXiv:2009.01325.
    """
    place = terminated.device if device == "auto" else torch.device(device)
    scores = _loaded(path, str(place), dtype).scores(
        prompts, messages, responses, terminated.tolist(), max_length=max_length, batch=batch
    )
    return scores.to(terminated.device)


@lru_cache(maxsize=4)
def _loaded(path, device, dtype):
    return reward_models.RewardModel(path, device, dtype, key="rewards.reward_model.path")
