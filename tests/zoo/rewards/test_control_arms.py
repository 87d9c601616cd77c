"""`random`, `majority` and `length`: rewards for control arms, by small arrays."""

import pytest
import torch

from helpers.zoo import ZOO

F64 = torch.float64
MASK = torch.tensor([[1.0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]], dtype=F64)


def score(name, columns, **options):
    return ZOO.rewards[name]({"response_mask": MASK, **columns}, **options).tolist()


def test_random_is_the_noise_of_the_first_action():
    noise = torch.tensor([[0.2, 0.9, 0, 0], [0.7, 0, 0, 0], [0.4, 0.1, 0, 0], [0.9, 0.1, 0.9, 0]])
    assert score("random", {"noise": noise.to(F64)}) == [1, 0, 1, 1]
    assert score("random", {"noise": noise.to(F64)}, p=0.3) == [1, 0, 0, 1]
    assert score("random", {"noise": noise.to(F64)}, p=0.0) == [0, 0, 0, 0]
    assert score("random", {"noise": noise.to(F64)}, p=1.0) == [1, 1, 1, 1]


def test_random_pays_as_often_as_it_says_whatever_the_response():
    noise = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    columns = {"noise": noise, "response_mask": torch.ones(20_000, 2, dtype=F64)}
    found = ZOO.rewards["random"](columns, p=0.3)
    assert found.mean().item() == pytest.approx(0.3, abs=0.015)  # 4.6 standard errors


def test_majority_pays_the_most_frequent_answer_and_every_one_that_ties():
    ids = torch.tensor([5, 2, 5, 5])
    assert score("majority", {"responses": ["7", "8", " 7", "9"], "group_ids": ids}) == [1, 1, 1, 0]
    assert score("majority", {"responses": ["7", "8", "6", "9"], "group_ids": ids}) == [1, 1, 1, 1]


def test_majority_takes_the_last_match_and_no_match_is_no_answer(golden):
    ids = torch.zeros(4, dtype=torch.long)
    texts = ["3, so #4", "#3 then #4", "4", "#3"]
    columns = {"responses": texts, "group_ids": ids}
    assert score("majority", columns, pattern=r"#(\d)") == [1, 1, 0, 0]
    silent = {"responses": ["a", "b", "c", "d"], "group_ids": ids}
    assert score("majority", silent, pattern=r"#(\d)") == [0, 0, 0, 0]
    with golden.refuses(ValueError):
        ZOO.rewards["majority"].refuse({"pattern": "("})


def test_length_is_relative_to_the_longest_of_the_group_and_to_its_success():
    # Lengths 3, 1, 4, 2; groups {0, 1} with mean score 0.5 and {2, 3} with 1.
    tasks = torch.zeros(4, 4, dtype=F64)
    tasks[0, 2] = tasks[2, 3] = tasks[3, 2] = 1
    columns = {"task_scores": tasks, "group_ids": torch.tensor([1, 1, 8, 8])}
    found = score("length", columns)
    assert found == pytest.approx([-0.5, -0.5 / 3, -1.0, -0.5], abs=1e-7)
    unsolved = {**columns, "task_scores": 0 * tasks}
    assert not any(score("length", unsolved))
