"""The score of the greedy response to each row's prompt, ReMax's baseline."""

import torch

from rlzoo import component


@component("column", shape="B")
def greedy_scores(sample, score, prompt_ids, prompt_mask, answers):
    """The reward R of the greedy rollout from each row's prompt, (B,), before KL.

    Rows with the same prompt and answer share one rollout, so the cost is one greedy response per
    distinct pair. Its tokens count like any others.
    Source: Li et al. 2023, arXiv:2310.10505.
    """
    inverse = []
    first: dict[tuple, tuple[int, int]] = {}  # of each pair: its number, and the row that has it
    known = (x.tolist() for x in (prompt_ids, prompt_mask))
    for row, (ids, mask) in enumerate(zip(*known, strict=True)):
        # An environment may answer by the right answer, so that distinguishes rollouts, too.
        key = (tuple(ids), tuple(mask), repr(answers[row]))
        inverse.append(first.setdefault(key, (len(first), row))[0])
    of = torch.tensor([row for _, row in first.values()])
    greedy = sample(prompt_ids[of], prompt_mask[of], greedy=True, of=of)
    rows, source = torch.arange(len(inverse)), torch.tensor(inverse)
    shared = {
        name: [x[i] for i in inverse] if isinstance(x, list) else x[source]
        for name, x in greedy.items()
    }
    return score({**shared, "rows": rows})
