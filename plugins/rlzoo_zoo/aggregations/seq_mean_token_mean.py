"""Every response counts the same, and each of its tokens the same within it."""

from rlzoo import hookimpl


def seq_mean_token_mean(response_mask):
    """w = 1 / (L_i N) at each of response i's L_i actions, N the responses with any, (B, T).

    GRPO's own: a token of a long wrong answer is punished less than one of a short wrong answer,
    which favours length (Liu et al. 2025, arXiv:2503.20783).
    Source: Shao et al. 2024, arXiv:2402.03300.
    """
    length = response_mask.sum(-1, keepdim=True)
    rows = (length > 0).sum().clamp(min=1)
    return response_mask / (length.clamp(min=1) * rows)


@hookimpl
def register_aggregations(register):
    register(seq_mean_token_mean, couples="batch")
