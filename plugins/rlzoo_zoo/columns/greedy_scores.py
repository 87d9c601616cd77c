"""The score of the greedy response to each row's prompt: ReMax's baseline."""

import torch

from rlzoo import hookimpl


def greedy_scores(sample, score, prompt_ids, prompt_mask, answers):
    """R of the greedy rollout from each row's prompt, (B,), before KL.

    Rows with the same prompt and answer share one rollout, so the cost is one greedy response for
    each such pair, metered like any other.
    Source: Li et al. 2023, arXiv:2310.10505.
    """
    inverse = []
    first: dict[tuple, tuple[int, int]] = {}  # of each pair: its number, and the row that has it
    for row, (ids, mask) in enumerate(zip(prompt_ids.tolist(), prompt_mask.tolist(), strict=True)):
        # What is right may be what an environment answers by: it tells rollouts apart, too.
        key = (tuple(ids), tuple(mask), repr(answers[row]))
        inverse.append(first.setdefault(key, (len(first), row))[0])
    of = torch.tensor([row for _, row in first.values()], device=prompt_ids.device)
    greedy = sample(prompt_ids[of], prompt_mask[of], greedy=True, of=of)
    rows = torch.arange(len(inverse), device=prompt_ids.device)
    shared = {
        name: [x[i] for i in inverse] if isinstance(x, list) else x[inverse]
        for name, x in greedy.items()
    }
    return score({**shared, "rows": rows})


@hookimpl
def register_columns(register):
    register(greedy_scores, shape="B")
