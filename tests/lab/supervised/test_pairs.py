"""Rows that rewards and supervised starts are learned from: read, named where bad, held out."""

import json

import pytest

from helpers.rows import USER, said, write
from rlzoo import RlzooError
from rlzoo.errors import DataError
from rlzoo_lab.supervised.pairs import read_demonstrations, read_preferences
from rlzoo_zoo.data import hold_out


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, ("p", "a", "b")),
        ({"prompt": [USER], "chosen": "a", "rejected": "b"}, ([USER], "a", "b")),
        ({"prompt": [USER], "chosen": [said("a")], "rejected": [said("b")]}, ([USER], "a", "b")),
        ({"chosen": [USER, said("a")], "rejected": [USER, said("b")]}, ([USER], "a", "b")),
        ({"prompt": "p", "chosen": "", "rejected": "b\u2028c"}, ("p", "", "b\u2028c")),
    ],
)
def test_preferences_may_be_text_or_messages(tmp_path, row, expected):
    file = write(tmp_path / "a.jsonl", [json.dumps(row, ensure_ascii=False), ""])
    assert read_preferences(file).rows == [expected]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "p", "response": "a"}, ("p", "a")),
        ({"prompt": "p", "completion": "a"}, ("p", "a")),
        ({"prompt": [USER], "completion": [said("a")]}, ([USER], "a")),
        ({"messages": [USER, said("a"), USER, said("b")]}, ([USER, said("a"), USER], "b")),
    ],
)
def test_demonstrations_may_be_text_or_messages(tmp_path, row, expected):
    assert read_demonstrations(write(tmp_path / "a.jsonl", [row])).rows == [expected]


def test_a_column_that_was_named_has_no_stand_in(tmp_path, golden):
    file = write(tmp_path / "a.jsonl", [{"prompt": "p", "completion": "a"}])
    with golden.refuses(DataError):
        read_demonstrations(file, {"response": "response"})


def test_columns_may_have_other_names(tmp_path):
    file = write(tmp_path / "a.jsonl", [{"q": "p", "good": "a", "bad": "b"}])
    names = {"prompt": "q", "chosen": "good", "rejected": "bad"}
    assert read_preferences(file, names).rows == [("p", "a", "b")]
    assert read_demonstrations(file, {"prompt": "q", "response": "bad"}).rows == [("p", "b")]


GOOD = {"prompt": "p", "chosen": "a", "rejected": "b"}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('{"prompt": "p",', ["not JSON"]),
        ("[1]", ["not an object with columns"]),
        ({"prompt": "p", "chosn": "a", "rejected": "b"}, [
            "no column 'chosen'", "did you mean 'chosn'", "available: prompt, chosn, rejected"]),
        ({**GOOD, "chosen": None}, ["'chosen' is null"]),
        ({**GOOD, "chosen": "b"}, ["are the same"]),
        ({**GOOD, "prompt": ""}, ["'prompt' is empty"]),
        ({**GOOD, "chosen": 3}, ["'chosen' must be a string, or messages", "Got 3"]),
        ({**GOOD, "chosen": [USER]}, ["'chosen' ends with a message of 'user'"]),
        ({"chosen": [USER, said("a")], "rejected": [said("c"), said("b")]}, [
            "answer different prompts"]),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_file_and_line_or_counted(tmp_path, bad, said, golden):
    file = write(tmp_path / "pairs.jsonl", [GOOD, bad, GOOD])
    with golden.refuses(DataError):
        read_preferences(file)
    found = read_preferences(file, on_bad_row="skip")
    assert found.rows == [("p", "a", "b")] * 2
    assert found.bad == 1


def test_no_row_left_and_no_file_are_errors(tmp_path, golden):
    file = write(tmp_path / "pairs.jsonl", ["{", "{"])
    with golden.refuses(DataError):
        read_preferences(file, on_bad_row="skip")
    with golden.refuses(DataError):
        read_preferences(tmp_path / "pears.jsonl")


def test_data_set_folders(tmp_path, monkeypatch, golden):
    import datasets

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = datasets.Dataset.from_list([GOOD, {**GOOD, "prompt": "q"}])
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=rows, test=rows.select([1])).save_to_disk(tmp_path / "two")
    expected = [("p", "a", "b"), ("q", "a", "b")]
    assert read_preferences(tmp_path / "one").rows == expected
    assert read_preferences(tmp_path / "two", split="train").rows == expected
    assert read_preferences(tmp_path / "two", split="test").rows == expected[1:]
    with golden.refuses(DataError):
        read_preferences(tmp_path / "two", split="tset")
    with golden.refuses(DataError):
        read_preferences(tmp_path / "one", {"chosen": "good"})


def test_held_out_rows_have_prompts_of_their_own(golden):
    rows = [(f"p{i % 20}", i) for i in range(100)]
    training, held = hold_out(rows, lambda row: row[0], 0.3, seed=1)
    assert {p for p, _ in training}.isdisjoint(p for p, _ in held)
    assert sorted(training + held) == sorted(rows)
    assert len(held) == 30
    assert hold_out(rows, lambda row: row[0], 0.3, seed=1) == (training, held)
    assert hold_out(rows, lambda row: row[0], 0.3, seed=2) != (training, held)
    for fraction in (0.001, 0.999):
        assert all(hold_out(rows, lambda row: row[0], fraction, seed=0))
    with golden.refuses(RlzooError):
        hold_out(rows[:1] * 5, lambda row: row[0], 0.5, seed=0)
