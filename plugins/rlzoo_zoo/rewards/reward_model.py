"""A learned reward: a sequence classifier with one label reads the prompt and the response."""

from functools import lru_cache
from typing import Annotated, Literal

import torch

from rlzoo import Range, hookimpl
from rlzoo.lm import RewardModel


def reward_model(
    prompts,
    messages,
    responses,
    terminated,
    *,
    path: Annotated[str, "a folder that `rlzoo reward train` made, or a hub id"] = "",
    batch: Annotated[int, Range(1), "rows per forward pass"] = 64,
    max_length: Annotated[int | None, Range(2), "tokens read, the last ones; null: all"] = None,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    device: Annotated[str, "auto: where the policy is"] = "auto",
):
    """r(prompt, response), (B,), by a frozen transformers sequence classifier with one label.

    The model brings its own tokenizer: with a chat template it reads the messages through it,
    without one the prompt's text, the response and, where the row terminated, EOS; an encoder
    (BERT, RoBERTa) reads the two as its tokenizer's pair. What is too long loses its beginning, but
    no BOS. Padding moves no score. Unbounded and of any scale: `weight` scales it. Breaks where the
    policy leaves what the preferences were about: the score keeps rising and the quality falls;
    hold it with `kl`.
    Source: Ouyang et al. 2022, arXiv:2203.02155; Stiennon et al. 2020, arXiv:2009.01325.
    """
    place = terminated.device if device == "auto" else torch.device(device)
    scores = _loaded(path, str(place), dtype).scores(
        prompts, messages, responses, terminated.tolist(), max_length=max_length, batch=batch
    )
    return scores.to(terminated.device)


def check(*, path, batch, max_length, dtype, device):
    RewardModel.check(path, device)


@lru_cache(maxsize=4)
def _loaded(path, device, dtype):
    return RewardModel(path, device, dtype, key="rewards.reward_model.path")


@hookimpl
def register_rewards(register):
    register(reward_model, check=check)
