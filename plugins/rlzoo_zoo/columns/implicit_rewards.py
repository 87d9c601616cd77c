"""Token rewards from a frozen implicit reward model: its log-ratio to the reference."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

import torch

from rlzoo import Range, RlzooError, component


def check(*, path, **_):
    if path:  # without one a recipe can be looked at, not run
        refuse(path)


@component("column", shape="BT", check=check)
def implicit_rewards(
    reference,
    prompt_ids,
    prompt_mask,
    response_ids,
    response_mask,
    response_attention,
    *,
    path: Annotated[str, "a folder written by `rlzoo model reward --implicit`"] = "",
    beta: Annotated[float, Range(0, None, "neither")] = 0.05,
    rows: Annotated[int, Range(1)] = 32,
):
    """beta log(pi_phi / pi_ref) of each action, (B, T), both at temperature 1.

    pi_phi is the frozen causal LM in the transformers folder `path`, trained so that the sum of
    this ratio separates correct responses from wrong ones. It must have the policy's vocabulary.
    pi_ref is the run's frozen reference; with LoRA, it is the policy's network without the
    adapters. `rows` rows pass through the models at a time. It fails if pi_phi was trained against
    a different reference, because the ratio is then meaningless.
    Source: Cui et al. 2025, arXiv:2502.01456; Yuan et al. 2024, arXiv:2412.01981.
    """
    refuse(path)
    columns = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "response_ids": response_ids,
        "response_attention": response_attention,
    }
    model = _load(path, str(response_ids.device))
    parts = [
        _log_ratios(model, reference, {n: x[some] for n, x in columns.items()})
        for some in torch.arange(len(response_ids)).split(rows)
    ]
    return beta * torch.cat(parts).to(response_mask.dtype) * response_mask


def refuse(path):
    if not (Path(path) / "config.json").is_file():
        raise RlzooError(f"implicit_rewards.path must be a transformers folder. Got {path!r}")


@lru_cache(maxsize=2)
def _load(path, device):
    from rlzoo.lm import load_causal_lm  # takes seconds: only on use

    model = load_causal_lm(Path(path))
    return model.to(device).eval().requires_grad_(False)


def _log_ratios(model, reference, columns):
    """log(pi_phi / pi_ref) of the response tokens of some rows, (b, T)."""
    ids, steps = columns["response_ids"], columns["response_ids"].shape[1]
    mask = torch.cat([columns["prompt_mask"], columns["response_attention"]], 1).long()
    theirs = reference.logits(columns)  # (b, t + 1, V), t the longest response here
    size = model.get_input_embeddings().num_embeddings
    if size < theirs.shape[2]:
        raise RlzooError(
            f"implicit_rewards.path: the model has {size} tokens, the policy {theirs.shape[2]}; "
            "they must have the same vocabulary"
        )
    with reference.precision():  # in the reference's own, or rounding would be a reward
        ours = model(
            input_ids=torch.cat([columns["prompt_ids"], ids], 1),
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            logits_to_keep=steps + 1,
            use_cache=False,
        ).logits[:, -steps - 1 :]
    width = theirs.shape[1] - 1
    phi, ref = (_log_probs(x[:, :width], ids[:, :width]) for x in (ours, theirs))
    return torch.nn.functional.pad(phi - ref, (0, steps - width))


def _log_probs(logits, ids):
    log_pi = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    return log_pi.gather(-1, ids[:, :, None]).squeeze(-1)
