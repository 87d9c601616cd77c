"""A learned reward: a sequence classifier with one label reads the prompt and the response."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import torch

from rlzoo import Range, RlzooError, hookimpl
from rlzoo.errors import nearest
from rlzoo.lm import reward_model as reward
from rlzoo.lm.loading import resolve_path
from rlzoo.parallel.device import pick_device


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
    without one the prompt's text, the response and, where the row terminated, EOS. Padding moves no
    score. Unbounded and of any scale: `weight` scales it. Breaks where the policy leaves what the
    preferences were about: the score goes on rising and the worth falls; hold it with `kl`.
    Source: Ouyang et al. 2022, arXiv:2203.02155; Stiennon et al. 2020, arXiv:2009.01325.
    """
    place = terminated.device if device == "auto" else torch.device(device)
    model, tokenizer = _loaded(path, str(place), dtype)
    limit = reward.longest(model, max_length)
    asked = messages if tokenizer.chat_template else prompts
    rows = [
        reward.encode(tokenizer, prompt, response, ended=ended, limit=limit)
        for prompt, response, ended in zip(asked, responses, terminated.tolist(), strict=True)
    ]
    with torch.no_grad():
        return reward.score(model, rows, batch).to(terminated.device)


def check(*, path, batch, max_length, dtype, device):
    if not path:
        raise RlzooError("path is missing: a folder that `rlzoo reward train` made, or a hub id")
    if device != "auto":
        pick_device(device)
    folder = Path(path).expanduser()
    if folder.is_dir():
        reward.refuse(folder)
    elif path.count("/") != 1 or path[0] in "./~" or folder.parent.is_dir():  # no hub id
        beside = [p.name for p in folder.parent.glob("*") if p.is_dir()]
        raise RlzooError(f"path: no folder {path!r}{nearest(folder.name, beside)}")


@lru_cache(maxsize=4)
def _loaded(path, device, dtype):
    check(path=path, batch=1, max_length=None, dtype=dtype, device="auto")
    return reward.load(resolve_path(path, "rewards.reward_model.path"), device, dtype)


@hookimpl
def register_rewards(register):
    register(reward_model, check=check)
