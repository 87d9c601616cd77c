"""Rows of like length go into one pass."""

import torch

from rlzoo.accel.passes import align, pack


def test_a_pass_ends_before_much_of_it_is_padding():
    lengths = torch.tensor([10, 1, 10, 1])
    mask = (torch.arange(10) < lengths[:, None] - 1).float()
    columns = {"prompt_mask": torch.ones(4, 1), "response_attention": mask}
    assert [part.tolist() for part in pack(columns, 40)] == [[0, 2], [1, 3]]


def group_columns(prompt, responses):
    """Rows of one group: a prompt of so many tokens, a response of each of these lengths."""
    steps = torch.arange(max(responses))
    return {
        "prompt_ids": torch.zeros(len(responses), prompt, dtype=torch.long),
        "prompt_mask": torch.ones(len(responses), prompt),
        "response_attention": (steps < torch.tensor(responses)[:, None]).float(),
        "group_ids": torch.zeros(len(responses), dtype=torch.long),
    }


def test_a_group_that_is_longer_than_a_pass_is_cut():
    columns = group_columns(4, [10, 10, 10, 10, 3])
    parts = pack(columns, 24, trees=True)
    assert sorted(torch.cat(parts).tolist()) == list(range(5))
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert [part.tolist() for part in pack(columns, 100, trees=True)] == [list(range(5))]


def test_rows_of_a_group_with_other_prompts_are_read_by_themselves():
    columns = group_columns(4, [10, 10, 10])
    columns["response_ids"] = torch.zeros(3, 10, dtype=torch.long)
    assert align(columns, trees=True).line is not None
    columns["prompt_ids"][2, 1] = 1
    assert align(columns, trees=True).line is None


def test_a_group_is_not_cut_where_its_prompt_would_be_most_of_a_pass():
    parts = pack(group_columns(50, [10] * 8), 24, trees=True)
    assert [len(part) for part in parts] == [8]
