"""Dynamic sampling: resamples groups whose samples all have the same score."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_degenerate


@component("sampler")
def dynamic(
    sample,
    score,
    prompt_ids,
    prompt_mask,
    group_ids,
    *,
    inner: str = "transformers",
    tries: Annotated[int, Range(1)] = 3,
):
    """Samples with `inner`, and resamples groups without signal with new noise, up to `tries` times
    in total.

    A group without signal gives zeros in every group-relative estimator, so its tokens are wasted;
    all sampled tokens count. DAPO replaces such groups by new prompts; here the prompts stay and
    their groups are resampled, so a prompt that is always or never solved remains without signal.
    It is biased towards mixed groups, as DAPO is.
    Elsewhere: filter_groups (verl), dynamic sampling (DAPO).
    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476.
    """
    drawn = sample(prompt_ids, prompt_mask)
    rows = torch.arange(len(prompt_ids))
    for _ in range(tries - 1):
        flat = group_degenerate(score({**drawn, "rows": rows}), group_ids).cpu()
        if not bool(flat.any()):
            break
        redo = rows[flat]
        again = sample(prompt_ids[redo], prompt_mask[redo], rows=redo)
        drawn = _replace(drawn, again, redo)
    return drawn


def _replace(drawn, again, redo):
    """`drawn` with the rows `redo` (N,) taken from `again`, both widened to the longer one."""
    out = {}
    at = {row: i for i, row in enumerate(redo.tolist())}
    for name, old in drawn.items():
        new = again[name]
        if isinstance(old, list):
            out[name] = [new[at[i]] if i in at else x for i, x in enumerate(old)]
            continue
        if old.ndim >= 2:
            width = max(old.shape[1], new.shape[1])
            old, new = (
                torch.nn.functional.pad(x, (0, 0) * (x.ndim - 2) + (0, width - x.shape[1]))
                for x in (old, new)
            )
        out[name] = old.index_copy(0, redo.to(old.device), new.to(old.dtype))
    return out
