"""The score of the greedy response to each row's prompt: ReMax's baseline."""

import torch

from rlzoo import hookimpl


def greedy_scores(sample, score, prompt_ids, prompt_mask):
    """R of the greedy rollout from each row's prompt, (B,), before KL.

    Rows with the same prompt share one rollout, so the cost is one greedy response for each
    distinct prompt, metered like any other; each row's own answer judges it.
    Source: Li et al. 2023, arXiv:2310.10505.
    """
    both = torch.cat([prompt_ids, prompt_mask.to(prompt_ids.dtype)], 1)
    distinct, inverse = torch.unique(both, dim=0, return_inverse=True)
    ids, mask = distinct.tensor_split(2, 1)
    greedy = sample(ids, mask.to(prompt_mask.dtype), greedy=True)
    texts = greedy["responses"]
    columns = {
        name: greedy[name][inverse]
        for name in ("response_ids", "response_mask", "terminated", "truncated")
    }
    columns["responses"] = [texts[i] for i in inverse.tolist()]
    columns["rows"] = torch.arange(len(inverse), device=inverse.device)
    return score(columns)


@hookimpl
def register_columns(register):
    register(greedy_scores, shape="B")
