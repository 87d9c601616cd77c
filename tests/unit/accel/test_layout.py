"""Rows of like length go into one pass."""

from itertools import pairwise

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
    first = torch.arange(len(responses))[:, None]
    return {
        "prompt_ids": torch.zeros(len(responses), prompt, dtype=torch.long),
        "prompt_mask": torch.ones(len(responses), prompt),
        "response_ids": first.repeat(1, len(steps)),
        "response_attention": (steps < torch.tensor(responses)[:, None]).float(),
        "group_ids": torch.zeros(len(responses), dtype=torch.long),
    }


def test_a_group_that_is_longer_than_a_pass_is_cut():
    columns = group_columns(4, [10, 10, 10, 10, 3])
    parts = pack(columns, 24, trees=True)
    assert sorted(torch.cat(parts).tolist()) == list(range(5))
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert [part.tolist() for part in pack(columns, 100, trees=True)] == [list(range(5))]


def test_each_beginning_of_a_row_is_read_once_whatever_its_group():
    """Rows of two symbols, of unequal prompts and responses, some of them alike."""
    torch.manual_seed(0)
    p, n = torch.randint(1, 5, (60,)), torch.randint(0, 5, (60,))
    mask = (torch.arange(4) >= 4 - p[:, None]).float()  # padded on the left
    columns = {
        "prompt_ids": torch.randint(0, 2, (60, 4)),
        "prompt_mask": mask,
        "response_ids": torch.randint(0, 2, (60, 4)),
        "response_attention": (torch.arange(4) < n[:, None]).float(),
        "group_ids": torch.arange(60),
    }
    prompts, responses = columns["prompt_ids"].tolist(), columns["response_ids"].tolist()
    texts = [(*prompts[i][4 - p[i] :], *responses[i][: n[i]]) for i in range(60)]
    rows = align(columns, trees=True)
    begins = {text[: k + 1] for text in texts for k in range(len(text))}
    assert rows.line is not None
    assert rows.ids.shape == (1, len(begins))
    read = {}  # a position of the line -> all tokens up to it, as attention sees them
    for where in rows.line.rows.tolist():
        for k, position in enumerate(where):
            text = tuple(rows.ids[0, where[: k + 1]].tolist())
            if text in begins and rows.place[0, position] == k:
                assert read.setdefault(position, text) == text
    assert set(read.values()) == begins
    flat = rows.line.rows.flatten()[rows.line.back]
    assert flat.tolist() == list(range(len(begins)))  # each output comes from a row that has it
    for text, at, first, length in zip(
        texts, rows.at.tolist(), p.tolist(), n.tolist(), strict=True
    ):
        for t in range(length + 1):  # the state in which response token t is chosen
            assert read[at[t]] == text[: first + t]
    assert len(rows.line.rows) < len(set(texts))  # rows that are the beginning of others add none


def test_rows_that_share_less_than_a_tenth_are_read_by_themselves():
    columns = group_columns(1, [12, 12, 12])
    assert align(columns, trees=True).line is None
    columns["response_ids"][2] = columns["response_ids"][1]
    assert align(columns, trees=True).line is not None


def test_a_group_is_not_cut_where_its_prompt_would_be_most_of_a_pass():
    parts = pack(group_columns(50, [10] * 8), 24, trees=True)
    assert [len(part) for part in parts] == [8]


def test_rows_of_unlike_prompts_that_begin_alike_are_all_in_a_pass():
    """A system prompt, then one response each: what is shared saves positions, but no row more."""
    torch.manual_seed(0)
    responses = torch.randint(1, 9, (20,))
    columns = group_columns(10, responses.tolist())
    columns["prompt_ids"][:, 8:] = torch.randint(0, 99, (20, 2))
    parts = pack(columns, 60, trees=True)
    assert sorted(torch.cat(parts).tolist()) == list(range(20))
    sizes = [(10 + responses[part]).tolist() for part in parts]
    assert all(sum(size) <= 60 for size in sizes)
    assert all(min(a) >= max(b) for a, b in pairwise(sizes))  # of similar length


def test_units_of_unequal_size_fill_a_pass_of_a_line():
    """A line has no padding, so that nothing is lost by reading them together."""
    columns = group_columns(3, [1, 1, 1, 9, 9, 9])
    columns["prompt_ids"][3:] = 1
    parts = pack(columns, 60, trees=True)
    assert [sorted(part.tolist()) for part in parts] == [list(range(6))]
