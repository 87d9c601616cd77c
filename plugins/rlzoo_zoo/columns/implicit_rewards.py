"""Token rewards of a frozen implicit reward model: its log-ratio to the reference."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

import torch

from rlzoo import Range, RlzooError, hookimpl


def implicit_rewards(
    reference,
    prompt_ids,
    prompt_mask,
    response_ids,
    response_mask,
    response_attention,
    *,
    path: str = "",
    beta: Annotated[float, Range(0, None, "neither")] = 0.05,
    rows: Annotated[int, Range(1)] = 32,
):
    """beta log(pi_phi / pi_ref) of each action, (B, T), both at temperature 1.

    pi_phi is the causal LM in the transformers folder `path`, read once and kept frozen: a model
    trained so that this ratio's sum tells right responses from wrong ones. It must share the
    policy's vocabulary. pi_ref is the run's frozen reference. `rows` go through the models at a
    time. Breaks if pi_phi was trained against another reference: the ratio then means nothing.
    Source: Cui et al. 2025, arXiv:2502.01456; Yuan et al. 2024, arXiv:2412.01981.
    """
    if not (Path(path) / "config.json").is_file():
        raise RlzooError(f"implicit_rewards.path must be a transformers folder. Got {path!r}")
    ids = torch.cat([prompt_ids, response_ids], 1)
    mask = torch.cat([prompt_mask, response_attention.to(prompt_mask.dtype)], 1).long()
    model = _load(path, str(ids.device))
    steps = response_ids.shape[1]
    parts = [
        _log_probs(model, i, m, steps) - _log_probs(reference.model, i, m, steps)
        for i, m in zip(ids.split(rows), mask.split(rows), strict=True)
    ]
    return beta * torch.cat(parts).to(response_mask.dtype) * response_mask


@lru_cache(maxsize=2)
def _load(path, device):
    from transformers import AutoModelForCausalLM  # takes seconds: only where it is asked for

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    return model.to(device).eval().requires_grad_(False)


def _log_probs(model, ids, mask, steps):
    """log pi of the last `steps` tokens, (b, T)."""
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        logits_to_keep=steps + 1,
        use_cache=False,
    )
    log_pi = out.logits[:, -steps - 1 : -1].float().log_softmax(-1)
    return log_pi.gather(-1, ids[:, -steps:, None]).squeeze(-1)


@hookimpl
def register_columns(register):
    register(implicit_rewards, shape="BT")
