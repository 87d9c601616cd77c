"""Tasks from data: what is read from where, what is right, and that bad rows are named."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rlzoo
from helpers import ROOT
from rlzoo import RlzooError
from rlzoo.cli import main
from rlzoo.errors import DataError, RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.kit import checks
from rlzoo_zoo.data import read
from rlzoo_zoo.rewards.regex import extract
from rlzoo_zoo.tasks.dataset import Dataset, contains
from rlzoo_zoo.tasks.reasoning_gym import ReasoningGym, arithmetic, disarm

ASKED = [{"role": "user", "content": "1/2?"}]
SUMS = [{"question": f"{a}+{b}=", "answer": a + b, "level": a} for a in range(8) for b in range(5)]


def write(path, rows):
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def sums(tmp_path):
    return write(tmp_path / "sums.jsonl", SUMS)


def made(path, **options):
    return Dataset(**{"path": path, "prompt": "question", **options})


def everything(task):
    return sorted(task.rows["train"] + task.rows["test"], key=lambda e: e.index)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- the kit


@pytest.mark.parametrize("checker", ["exact", "numeric", "contains", "none"])
def test_the_kit_finds_no_fault(checker, zoo, sums):
    options = {"path": sums, "prompt": "question", "checker": checker}
    results = checks.run_checks(zoo.tasks["dataset"], zoo, options)
    assert [r for r in results if r.passed is False] == []
    passed = {r.name for r in results if r.passed}
    assert {"draws_by_the_generator", "scores_are_finite", "scores_repeat"} <= passed


def test_without_a_path_the_kit_says_what_is_wanted(zoo):
    results = checks.run_checks(zoo.tasks["dataset"], zoo)
    assert {r.name for r in results if r.passed} == {"documented"}
    assert any("path is missing" in r.message for r in results)


# ---------------------------------------------------------------- formats


def parquet(path):
    from pyarrow import Table
    from pyarrow import parquet as pq

    pq.write_table(Table.from_pylist(SUMS), path / "sums.parquet")
    return {"path": str(path / "sums.parquet")}


def saved(path):
    import datasets

    datasets.Dataset.from_list(SUMS).save_to_disk(path / "saved")
    return {"path": str(path / "saved"), "split": ""}


def saved_splits(path):
    import datasets

    parts = {"train": SUMS[:30], "test": SUMS[30:]}
    found = datasets.DatasetDict({k: datasets.Dataset.from_list(v) for k, v in parts.items()})
    found.save_to_disk(path / "splits")
    return {"path": str(path / "splits"), "test_split": "test"}


@pytest.mark.parametrize("make", [saved, saved_splits])
def test_every_format_gives_the_same_rows(make, tmp_path, sums, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    want = [(e.prompt, e.answer) for e in everything(made(sums))]
    task = made(**make(tmp_path))
    assert sorted((e.prompt, e.answer) for e in everything(task)) == sorted(want)
    if make is saved_splits:
        assert len(task.rows["test"]) == 10


def test_a_hub_id_is_read_from_the_cache(tmp_path, monkeypatch):
    import datasets

    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    found = datasets.load_dataset("json", data_files=write(tmp_path / "a.jsonl", SUMS))
    (arrow,) = cache.rglob("*.arrow")
    assert found["train"].num_rows == len(SUMS)
    # What the library would have left there of a data set from the hub.
    place = cache / "owner___sums" / "default" / "0.0.0" / ("0" * 40)
    place.mkdir(parents=True)
    arrow.rename(place / "sums-train.arrow")
    info = json.loads((arrow.parent / "dataset_info.json").read_text())
    info |= {"dataset_name": "sums", "config_name": "default"}
    info["splits"]["train"]["dataset_name"] = "sums"
    (place / "dataset_info.json").write_text(json.dumps(info))
    task = made("owner/sums")
    assert [(e.prompt, e.answer) for e in everything(task)] == [
        (row["question"], row["answer"]) for row in SUMS
    ]


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_id_without_a_network_names_the_cache(offline, tmp_path, monkeypatch, golden):
    import datasets

    from rlzoo.lm import loading as pretrained

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(pretrained, "reachable", lambda url: False)
    with golden.refuses(DataError):
        made("openai/gsm8k", subset="main")
    assert datasets.config.HF_HUB_OFFLINE is offline


def test_jsonl_needs_no_library(sums, monkeypatch):
    for name in ("datasets", "pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)  # to import it is an error
    assert Dataset(path=sums, prompt="question").rows["train"]


def test_a_missing_library_is_named(sums, tmp_path, monkeypatch, golden):
    place, folder = parquet(tmp_path)["path"], saved(tmp_path)["path"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert made(sums)
    with golden.refuses(DataError):
        made(place)
    with golden.refuses(DataError):
        made(folder)


def test_what_is_not_there_is_named(sums, tmp_path, golden):
    (tmp_path / "rows.txt").write_text("x")
    (tmp_path / "bad.parquet").write_text("x")
    (tmp_path / "empty").mkdir()
    names = ("sum.jsonl", "none", "rows.txt", "bad.parquet", "empty")
    for path in ("", *(str(tmp_path / name) for name in names)):
        with golden.refuses((ValueError, RlzooError)):
            made(path)
    with golden.refuses(DataError):
        made(**saved_splits(tmp_path) | {"test_split": "tests"})


def test_the_hub_is_asked_for_no_builder_of_the_library(golden):
    """`pandas` would unpickle files: only owner/name is taken for a hub id."""
    for name in ("pandas", "hf://datasets/owner/name", "a/b/c", "./owner/name"):
        with golden.refuses(DataError):
            made(name)


# ---------------------------------------------------------------- bad rows


BAD = {
    '{"question": "1+1=", "answer": 2': "not JSON: Expecting ',' delimiter at column",
    "[1, 2]": "not an object",
    "null": "not an object",
    '{"question": "", "answer": 2}': "empty prompt",
    '{"question": " \\n", "answer": 2}': "empty prompt",
    '{"question": null, "answer": 2}': "'question' is null",
    '{"answer": 2}': "there is no column 'question' (available: answer)",
    '{"question": "1+1=", "answr": 2}': "there is no column 'answer'; did you mean 'answr'?",
    '{"question": "1+1=", "answer": null}': "'answer' is null",
    '{"question": "1+1=", "answer": " "}': "empty answer",
    '{"question": "1+1=", "answer": {"a": 2}}': "an answer must be a string, a number or a list",
    '{"question": 11, "answer": 2}': "must be a string, or messages",
    '{"question": [{"role": "user"}], "answer": 2}': "must be a string, or messages",
    '{"question": [{"role": "user", "content": " "}], "answer": 2}': "empty prompt",
    "[" * 100_000: "not JSON: too large",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_row_is_named_by_file_and_line(line, tmp_path):
    path = write(tmp_path / "bad.jsonl", [*SUMS[:2], "", line, *SUMS[2:]])
    with pytest.raises(DataError) as caught:
        made(path)
    assert str(caught.value).startswith(f"{path}:4: {BAD[line]}")
    assert "\n" not in str(caught.value)
    task = made(path, on_bad_row="skip")
    assert task.notes == [f"{path}: 1 of 41 rows skipped, first {caught.value}"]
    assert [e.index for e in everything(task)] == [0, 1, *range(4, 42)]  # the line's number, less 1


@pytest.mark.parametrize("on_bad_row", ["stop", "skip"])
def test_a_column_that_no_row_has_is_a_wrong_name(on_bad_row, sums, golden):
    with golden.refuses(DataError):
        made(sums, prompt="quest", on_bad_row=on_bad_row)
    with golden.refuses(DataError):
        made(sums, template="{levels}", on_bad_row=on_bad_row)


def test_no_row_to_use_is_an_error(tmp_path, golden):
    with golden.refuses(DataError):
        made(write(tmp_path / "empty.jsonl", []))
    with golden.refuses(DataError):
        made(write(tmp_path / "bad.jsonl", ["{"]), on_bad_row="skip")
    with golden.refuses(RlzooError):
        made(write(tmp_path / "one.jsonl", SUMS[:1] * 3))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_faults(content):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.jsonl"
        path.write_bytes(content)
        rows = list(read(str(path)))
    assert all((row.values is None) == bool(row.fault) for row in rows)
    assert len(rows) <= content.count(b"\n") + 1


def test_options_that_cannot_be_are_refused(sums, golden):
    for options in (
        {"answer": None}, {"answer_pattern": "("}, {"response_pattern": "*"},
        {"test_path": sums, "test_split": "test"},
    ):  # fmt: skip
        with golden.refuses(ValueError):
            made(sums, **options)


# ---------------------------------------------------------------- prompts and answers


def test_a_template_is_filled_from_columns_and_never_evaluated(tmp_path, golden):
    rows = [{"q": "{a.__class__} {b}", "a": i, "b": 2, "my col": "x"} for i in range(2)]
    path = write(tmp_path / "rows.jsonl", rows)
    task = made(path, template="{my col}{a}{{{q}}} {}\n", answer="b")
    want = [f"x{i}{{{{a.__class__}} {{b}}}} {{}}\n" for i in range(2)]
    assert [e.prompt for e in everything(task)] == want
    with golden.refuses(DataError):
        made(path, template="{a.__class__}", answer="b")


@pytest.mark.parametrize(
    "value", [ASKED, json.dumps(ASKED), repr(ASKED), {"q": "1"}, [["1"]], ASKED[0]]
)
def test_a_template_prints_no_source(value, tmp_path, golden):
    path = write(tmp_path / "rows.jsonl", [{"p": value, "answer": 1, "list": ["a", 2]}] * 2)
    with golden.refuses(DataError):
        made(path, template="{p}")
    with golden.refuses(RlzooError):
        made(path, template="{list}")


def test_chat_messages_are_passed_as_they_are(tmp_path, golden):
    def chat(i):
        return [{"role": "system", "content": "Add."}, {"role": "user", "content": f"{i}+1="}]

    rows = [{"question": chat(i), "answer": i + 1} for i in range(6)]
    task = made(write(tmp_path / "chat.jsonl", rows))
    assert [e.prompt for e in everything(task)] == [chat(i) for i in range(6)]
    task.max_prompt, task.too_long = 1, "cut_end"
    with golden.refuses(DataError):
        task.fit(lambda prompt: 2)


def test_the_final_answer_is_taken_out_of_a_solution(tmp_path, golden):
    rows = [
        {"question": f"{i}?", "answer": f"#### 0 is wrong, {i} it is\n#### {i},000 "}
        for i in range(4)
    ]
    path = write(tmp_path / "gsm.jsonl", rows)
    task = made(path, answer_pattern=r"####\s*(.+)", checker="numeric")
    assert [e.answer for e in everything(task)] == [f"{i},000" for i in range(4)]
    assert task.is_correct(["so $3000.00", "3"], ["3,000"] * 2).tolist() == [True, False]
    with golden.refuses(DataError):
        made(path, answer_pattern="=> (.*)")
    with golden.refuses(DataError):
        made(path, answer_pattern="#### 0 (.*),", checker="numeric")


def test_extract_takes_the_last_match():
    assert extract(r"<a>(.*?)</a>", "<a>1</a> <a> 2 </a>") == "2"
    assert extract(r"\d+", "1 22 x") == "22"
    assert extract(r"\d+", "x") is None
    assert extract("x*", "axx") == ""  # empty at the end
    assert extract("(a)|b", "ab") is None  # the last match has no group


VERL = {"data_source": "x", "reward_model": {"style": "rule", "ground_truth": r"\frac{1}{2}"}}


def verl(path, kind, prompt):
    row = {**VERL, "prompt": prompt, "extra_info": {"index": 0, "split": "train"}}
    rows = [row, {**row, "prompt": json.loads(json.dumps(prompt).replace("1/2?", "0.5?"))}]
    if kind == "jsonl":
        return write(path / "verl.jsonl", rows)
    from pyarrow import Table
    from pyarrow import parquet as pq

    pq.write_table(Table.from_pylist(rows), path / "verl.parquet")
    return str(path / "verl.parquet")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "prompt", [ASKED, json.dumps(ASKED), repr(ASKED)], ids=["", "json", "repr"]
)
def test_the_format_of_verl(kind, prompt, tmp_path, golden):
    path = verl(tmp_path, kind, prompt)
    task = Dataset(path=path, answer="reward_model.ground_truth", checker="math",
                   domain="data_source")  # fmt: skip
    first = everything(task)[0]
    assert first == (ASKED, r"\frac{1}{2}", 0)
    assert task.is_correct(["0.5"], [first.answer]).tolist() == [True]
    assert task.domains == ["x"]
    by = {"template": "{prompt.0.content} {extra_info.index}", "answer": "extra_info.split"}
    if prompt is ASKED:
        assert everything(Dataset(path=path, **by))[0][:2] == ("1/2? 0", "train")
    for answer in ("reward_model", "ground_truth", "reward_model.truth"):
        for pattern in ("", "'ground_truth': '([^']*)'"):
            with golden.refuses(DataError):
                Dataset(path=path, answer=answer, answer_pattern=pattern)
    whole = Dataset(path=path, answer="reward_model", checker="none")  # for a reward of your own
    assert everything(whole)[0].answer == VERL["reward_model"]


@pytest.mark.parametrize(
    ("answer", "options", "expected"),
    [
        (True, {}, True),
        (5.0, {"checker": "numeric"}, 5.0),
        (["2", 3], {}, ["2", 3]),
        (["#### 1", "#### 2"], {"answer_pattern": "#### (.*)"}, ["1", "2"]),
        (42, {"answer_pattern": r"\d$"}, "2"),
        ({"text": ["a", "b"]}, {"answer": "answer.text"}, ["a", "b"]),
        ({"text": ["a", "b"]}, {"answer": "answer.text.-1"}, "b"),
        ('{"gold": 7}', {"answer": "answer.gold"}, 7),
        ("{'gold': [7, None]}", {"answer": "answer.gold.0"}, 7),
    ],
)
def test_answers_of_other_types(answer, options, expected, tmp_path):
    rows = [{"question": q, "answer": answer} for q in "ab"]
    task = made(write(tmp_path / "rows.jsonl", rows), **options)
    assert {repr(e.answer) for e in everything(task)} == {repr(expected)}


@pytest.mark.parametrize(
    ("answer", "checker"),
    [
        (r"\boxed{}", "math"), (["1", r"\text{}"], "math"), (["1", ""], "math"),
        (["1", " "], "exact"), ([], "contains"), ([1, None], "exact"), ([[1]], "exact"),
        (True, "numeric"), ("none", "numeric"), (["1", "none"], "numeric"),
    ],
)  # fmt: skip
def test_each_answer_is_tried_when_the_data_is_read(answer, checker, tmp_path, golden):
    rows = [{"question": str(i), "answer": str(i)} for i in range(6)]
    path = write(tmp_path / "rows.jsonl", [*rows, {"question": "x", "answer": answer}])
    with golden.refuses(DataError):
        made(path, checker=checker)
    task = made(path, checker=checker, on_bad_row="skip")
    assert len(everything(task)) == 6
    assert "1 of 7 rows skipped" in task.notes[0]


@pytest.mark.parametrize(
    ("options", "answer", "noted"),
    [
        ({"template": r"{question} Put it in \boxed{answer}."}, "1", "{answer} is its column"),
        ({"template": r"{question} Put it in \boxed{}."}, "1", ""),
        ({}, '["1"]', "task.answer=answer.0"), ({}, "['1', '2']", "task.answer=answer.0"),
        ({"answer": "answer.0"}, '["1"]', ""), ({}, "[1, 2]", ""), ({}, "[]", ""), ({}, ["1"], ""),
    ],
)  # fmt: skip
def test_a_template_with_the_answer_and_a_list_as_text_are_noted(options, answer, noted, tmp_path):
    rows = [{"question": q, "answer": answer} for q in "ab"]
    notes = made(write(tmp_path / "rows.jsonl", rows), **options).notes
    assert len(notes) == bool(noted)
    assert noted in "".join(notes)


def test_values_of_a_table_are_answers_or_bad_rows(tmp_path, golden):
    from datetime import date
    from decimal import Decimal

    from pyarrow import Table
    from pyarrow import parquet as pq

    row = {"price": Decimal("18.90"), "day": date(2026, 1, 2), "none": float("nan")}
    rows = [{**row, "question": q} for q in "ab"]
    path = tmp_path / "table.parquet"
    pq.write_table(Table.from_pylist(rows), path)
    assert everything(made(str(path), answer="price"))[0].answer == "18.90"
    for name in ("day", "none"):
        with golden.refuses(DataError):
            made(str(path), answer=name)


def test_a_table_with_empty_cells_has_its_numbers_as_floats(tmp_path):
    from pyarrow import Table
    from pyarrow import parquet as pq

    rows = [{"question": q, "answer": a} for q, a in (("a", 12.0), ("b", 12.0), ("c", None))]
    pq.write_table(Table.from_pylist(rows), tmp_path / "table.parquet")
    for checker in ("exact", "contains", "numeric", "math"):
        task = made(str(tmp_path / "table.parquet"), checker=checker, on_bad_row="skip")
        answers = [e.answer for e in everything(task)]
        assert task.is_correct(["12", "12.0"], answers).tolist() == [True, True]
        assert task.is_correct(["120", "1"], answers).tolist() == [False, False]
    assert made(write(tmp_path / "a.jsonl", [{"question": q, "answer": True} for q in "ab"])).right(
        ["true", "True", "false"], [True] * 3
    ).tolist() == [True, True, False]


def test_many_answers_are_tried_by_several_processes(monkeypatch):
    from rlzoo_zoo.rewards import math_verify

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    answers = {f"{i}": rf"{i}^{{7}}" for i in range(200)} | {"bad": r"\boxed{}", "n": "12"}
    faults, left = math_verify.unreadable(answers)
    assert set(faults) == {"bad"}
    assert left == 0
    assert set(math_verify.unreadable({"slow": "2^{" * 4000}, timeout=0.01)[0]) == {"slow"}
    monkeypatch.setattr(math_verify, "TRIED", 150)
    assert math_verify.unreadable(answers) == ({}, 51)  # a number needs no trial


# ---------------------------------------------------------------- what is right


def test_each_checker_by_the_verifier_of_its_name(tmp_path):
    path = write(tmp_path / "two.jsonl", [{"question": q, "answer": "42"} for q in "ab"])

    def right(checker, responses, answers=None, **options):
        task = made(path, checker=checker, **options)
        return task.is_correct(responses, answers or ["42"] * len(responses)).tolist()

    said = ["42", " 42 ", "so 42", "so 42.0", "420", r"\boxed{42}"]
    assert right("exact", said) == [True, True, False, False, False, False]
    assert right("numeric", said) == [True, True, True, True, False, True]
    assert right("contains", said) == [True, True, True, True, False, True]
    assert right("math", said) == [True, True, True, True, False, True]
    assert right("numeric", ["42.1"], tolerance=0.2) == [True]
    assert right("exact", ["YES"], ["yes"], casefold=True) == [True]
    tagged = ["41 <a>42</a>", "42"]
    assert right("exact", tagged, response_pattern="<a>(.*?)</a>") == [True, False]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a (b) c", "(b)"), ("Paris.", "Paris"), ("it is _Paris_", "Paris"),
        ("new  York", "new York"),
        ("我在北京工作", "北京"), ("答えは東京です", "東京"), ("서울입니다", "서울"),
        ("共12个", "12"),
        ("คำตอบคือกรุงเทพ", "กรุงเทพ"), ("ຄຳຕອບແມ່ນວຽງຈັນ", "ວຽງຈັນ"), ("我在Paris工作", "Paris"),
        ("ភ្នំពេញគឺ", "ភ្នំពេញ"), ("उत्तर दिल्ली है", "दिल्ली"), ("use C++.", "C++"), ("C++11", "C++"),
        ("on .NET 8", ".NET"), ("C#的", "C#"), ("x=-5", "-5"), ("is 12.", "12"), ("12.0", "12"),
        ("cafe\u0301 noir", "café"), ("l'été", "été"), ("well-known", "known"), ("A+", "A+"),
        ("f(x)=2", "f(x)"), ("一加一", "一"),
    ],
)  # fmt: skip
def test_contains_finds_words_of_any_script(text, word):
    assert contains(text, word, False)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Paris, of course", "paris"), ("142", "42"), ("party", "art"), ("a_b", "b"), ("été", "t"),
        ("C++", "C"), ("C# too", "C"), ("10-5", "-5"), ("x.5", ".5"), ("1,200", "200"),
        ("12.5", "12"), ("3.12", "12"), ("กี่", "ก"), ("दिल्ली", "दिल"), ("e\u0323x", "e"),
        ("Straße", "stra"), ("привет", "вет"), ("北京", "东京"), ("v12", "12"),
        ("is -12", "12"), ("（−12）", "12"), ("3/4", "4"), ("at 10:30", "10"),
    ],
)  # fmt: skip
def test_contains_finds_no_parts_of_words(text, word):
    assert not contains(text, word, False)


def test_contains_may_ignore_case():
    assert contains("Paris, of course", "paris", True)


def test_a_cut_off_response_scores_nothing(sums):
    task = made(sums)
    ended = torch.tensor([True, False])
    assert task.score(["5", "5"], [5, 5], ended).tolist() == [1, 0]


def test_without_answers_there_is_no_notion_of_right(sums):
    task = made(sums, answer=None, checker="none")
    assert not hasattr(task, "is_correct")
    assert {e.answer for e in everything(task)} == {None}
    assert task.score(["5"], [None], torch.tensor([True])).tolist() == [0]
    assert "score is always 0" in task.notes[0]


# ---------------------------------------------------------------- splits and draws


def test_the_split_is_by_seed_and_keeps_a_prompt_on_one_side(tmp_path):
    path = write(tmp_path / "twice.jsonl", SUMS + SUMS)
    sides = {}
    for seed in (0, 1):
        task = made(path, split_seed=seed, test_fraction=0.25)
        train, test = ({e.prompt for e in task.rows[s]} for s in ("train", "test"))
        assert not train & test
        assert len(test) == 10
        assert len(task.rows["train"]) + len(task.rows["test"]) == 80
        assert made(path, split_seed=seed, test_fraction=0.25).rows == task.rows
        sides[seed] = test
    assert sides[0] != sides[1]


def test_a_test_file_is_held_out_whole_and_shared_prompts_are_told(sums, tmp_path):
    other = write(tmp_path / "test.jsonl", [*SUMS[:2], {"question": "new", "answer": 1}])
    task = made(sums, test_path=other)
    assert len(task.rows["train"]) == 40
    assert [e.index for e in task.rows["test"]] == [40, 41, 42]  # no index twice
    assert task.notes == ["2 of 3 held-out prompts are also training prompts"]


def test_draws_are_a_function_of_the_generator_and_meet_every_row(sums):
    task = made(sums)
    rows = task.rows["train"]
    drawn = task.draw("train", 2 * len(rows) + 3, rng())
    assert drawn == task.draw("train", 2 * len(rows) + 3, rng())
    assert drawn != task.draw("train", 2 * len(rows) + 3, rng(1))
    for start in (0, len(rows)):
        assert sorted(drawn[start : start + len(rows)]) == sorted(rows)
    assert task.draw("test", 0, rng()) == []


# ---------------------------------------------------------------- too long


def test_prompts_that_are_too_long_are_dropped_and_counted(tmp_path, golden):
    rows = [{"question": "x" * n, "answer": n} for n in range(1, 21)]
    path = write(tmp_path / "long.jsonl", rows)
    task = made(path, max_prompt=12)
    assert task.fit(len) == "8 of 20 prompts longer than 12 tokens dropped"
    assert [e.answer for e in everything(task)] == list(range(1, 13))
    assert task.notes == ["8 of 20 prompts longer than 12 tokens dropped"]
    assert task.fit(len) is None  # nothing left to do
    assert made(path).fit(len) is None
    assert made(path, max_prompt=20).fit(len) is None
    with golden.refuses(DataError):
        made(path, max_prompt=12, too_long="stop").fit(len)
    with golden.refuses(DataError):
        made(path, max_prompt=1).fit(lambda prompt: 2)


@pytest.mark.parametrize(("way", "kept"), [("cut_start", "efghij"), ("cut_end", "abcdef")])
def test_prompts_that_are_too_long_are_cut(way, kept, tmp_path, golden):
    rows = [{"question": q, "answer": 1} for q in ("abcdefghij", "short")]
    path = write(tmp_path / "long.jsonl", rows)
    task = made(path, max_prompt=6, too_long=way)
    assert task.fit(len) == "1 of 2 prompts longer than 6 tokens cut"
    assert [e.prompt for e in everything(task)] == [kept, "short"]
    pairs = made(path, max_prompt=3, too_long=way)  # two characters a token
    pairs.fit(lambda text: (len(text) + 1) // 2)
    assert everything(pairs)[0].prompt == kept
    with golden.refuses(DataError):
        made(path, max_prompt=2, too_long=way).fit(lambda text: 3)


# ---------------------------------------------------------------- in a run


def test_a_run_on_a_file(sums, words, tmp_path, zoo):
    asked = ["task=dataset", f"task.path={sums}", "task.prompt=question", f"run.dir={tmp_path}/r"]
    run = rlzoo.run("grpo", [*words, *asked])
    assert run.summary["task"] == "dataset"
    assert run.summary["eval_metric"] == "accuracy"
    prompts = {row["question"] for row in SUMS}
    lines = (tmp_path / "r" / "samples.jsonl").read_text().splitlines()
    assert {json.loads(line)["prompt"] for line in lines} <= prompts


def test_faults_come_before_a_model_is_loaded(sums, zoo, golden):
    words = ["recipe=grpo", "model.path=nowhere", "task=dataset", "task.prompt=question"]
    with golden.refuses(RecipeError):
        make_plan(compose(words, zoo), zoo)
    with golden.refuses(RlzooError):
        make_plan(compose([*words, f"task.path={sums.replace('sums', 'sum')}"], zoo), zoo)


def test_the_preset_for_a_file_of_yours(zoo, tmp_path, monkeypatch):
    write(tmp_path / "data.jsonl", SUMS)
    monkeypatch.chdir(tmp_path)
    plan = make_plan(compose(["recipe=grpo", "task=math_jsonl"], zoo), zoo)
    assert plan.task_name == "dataset"
    assert everything(plan.task)[0].prompt == "0+0=\n"


def test_the_preset_for_gsm8k_reads_rows_like_its_own(zoo, tmp_path):
    recipe = compose(["recipe=grpo", "task=gsm8k"], zoo)
    options = recipe.options("task")
    assert (options["path"], options["subset"]) == ("openai/gsm8k", "main")
    solution = "She has 3 + 4 = <<3+4=7>>7 eggs.\nThat is 7 * 150 = 1,050 cents.\n#### 1,050"
    rows = [{"question": f"How many, {i}?", "answer": solution} for i in range(3)]
    path = write(tmp_path / "gsm8k.jsonl", rows)
    task = Dataset(**{**options, "path": path, "test_path": path, "test_split": ""})
    first = task.rows["train"][0]
    assert first.answer == "1,050"
    assert first.prompt.startswith("How many, 0?\nReason")
    assert r"\boxed{}" in first.prompt
    said = [r"It is \boxed{1050}, not 7.", "1,050 cents", "10.50"]
    assert task.is_correct(said, [first.answer] * 3).tolist() == [True, True, False]


@pytest.mark.landing
@pytest.mark.process
def test_the_commands_of_the_page_work(tmp_path, monkeypatch, capsys):
    """docs/data.md from top to bottom: a shell to which `rlzoo` is this process."""
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = "".join(code for kind, code in blocks if kind == "sh")
    script = script.replace("train.steps=20", "train.steps=8")  # enough to see it learn
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = []
    with subprocess.Popen(["bash", "-e"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, start_new_session=True) as shell:  # fmt: skip
        for part in re.split(r"^(rlzoo (?:.*\\\n)*.*)$", script, flags=re.MULTILINE):
            if part.startswith("rlzoo "):
                command, *otherwise = part.partition(" || true")
                status = main(shlex.split(command.replace("\\\n", ""))[1:])
                assert status == 0 or any(otherwise), part
            else:
                print(f"{part}\necho done", file=shell.stdin, flush=True)
                for line in iter(shell.stdout.readline, "done\n"):
                    assert line, part  # the shell has gone
                    said.append(line)
        shell.stdin.close()
    captured = capsys.readouterr()
    row, _, fault = (code for kind, code in blocks if not kind)  # between them, 20 steps' numbers
    assert row in said
    assert fault in captured.err
    runs = {name: json.loads((tmp_path / name / "summary.json").read_text())
            for name in ("first", "second", "third")}  # fmt: skip
    assert runs["first"]["eval_after"] > runs["first"]["eval_before"] + 0.1
    assert runs["third"]["steps"] == 2


# ---------------------------------------------------------------- reasoning-gym


def test_reasoning_gym_by_name():
    task = ReasoningGym(dataset="chain_sum", size=50, config=["min_terms=2", "max_terms=2"])
    drawn = {split: task.draw(split, 60, rng()) for split in ("train", "test")}
    numbers = {split: {e.index for e in found} for split, found in drawn.items()}
    assert numbers["test"] == set(range(0, 50, 5))
    assert numbers["train"] == set(range(50)) - numbers["test"]
    example = drawn["train"][0]
    index = torch.tensor([example.index] * 3)
    ended = torch.tensor([True, True, False])
    responses = [f" {example.answer}\n", "no", example.answer]
    assert task.score(responses, index, ended).tolist() == [1, 0, 0]
    assert task.is_correct(responses, index).tolist() == [True, False, True]
    assert example.prompt.count(" ") > 5
    tagged = ReasoningGym(size=5, answer_pattern="<answer>(.*?)</answer>")
    right = tagged.example(0)
    found = tagged.grade([f"<answer>{right.answer}</answer>", right.answer], torch.tensor([0, 0]))
    assert found.tolist() == [1, 0]


def test_reasoning_gym_names_what_is_wrong(zoo, monkeypatch, golden):
    for options in (
        {"dataset": "chain_sums"}, {"config": ["min_terms"]}, {"config": ["min_term=2"]},
        {"config": ["min_terms=0"]}, {"template": "Q:"}, {"dataset": "composite"},
        {"dataset": "simple_integration"},
    ):  # fmt: skip
        with golden.refuses(ValueError):
            ReasoningGym(**options)
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: None)
    with golden.refuses(RlzooError):
        ReasoningGym()


def test_reasoning_gym_executes_no_response(tmp_path):
    """Those of its verifiers that `eval`, or refuse to be used without it."""
    mark = tmp_path / "executed"
    code = f"__import__('os').system('touch {mark}')"
    used = []
    for name in ("binary_matrix", "countdown", "n_queens", "number_sorting", "puzzle24",
                 "spiral_matrix", "string_insertion"):  # fmt: skip
        task = ReasoningGym(dataset=name, size=2)
        example = task.example(1)
        index = torch.tensor([1])
        answers = [code, f"[{code}]", f"1+{code}", f"[[0 for _ in [{code}]]]"]
        assert max(task.grade([a], index).item() for a in answers) < 1
        if example.answer is not None:
            assert task.grade([str(example.answer)], index).item() == 1
            used.append(name)
    assert not mark.exists()
    assert len(used) >= 5


def test_every_verifier_of_reasoning_gym_that_executes_text_is_known():
    """A new release may bring others: a data set that gets by must call none of these itself."""
    import inspect

    from reasoning_gym.factory import DATASETS

    for name, (kind, _) in DATASETS.items():
        try:
            disarm(kind, name)
        except ValueError:
            continue
        source = inspect.getsource(kind.score_answer)
        called = set(re.findall(r"\b(eval|exec|parse_expr|sympify)\(", source))
        module = sys.modules[kind.__module__]
        assert all(getattr(module, c).__module__ in ("ast", arithmetic.__module__) for c in called)


def test_arithmetic_is_numbers_and_four_operators():
    assert arithmetic(" (1 + 2) * 3 / 4 - -1") == 3.25
    for text in ("9**9", "a", "f(1)", "'x'*9", "1 if 1 else 2", "[1]", "1//2", "(1).real", ""):
        with pytest.raises((ValueError, SyntaxError)):
            arithmetic(text)


@pytest.mark.parametrize(
    "row", ['{"prompt": "b", "answer": NaN}', '{"prompt": "b", "answer": [1, NaN]}']
)
def test_an_answer_that_is_nan_is_a_bad_row(row, tmp_path, golden):
    file = tmp_path / "rows.jsonl"
    rows = [f'{{"prompt": "{c}", "answer": "1", "other": NaN}}' for c in "cdefghij"]
    file.write_text("\n".join([*rows, row]))
    with golden.refuses(DataError):
        Dataset(path=str(file))
    assert any("1 of 9 rows" in note for note in Dataset(path=str(file), on_bad_row="skip").notes)


def test_a_line_that_is_cut_is_described_once(tmp_path, golden):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "1')
    with golden.refuses(DataError):
        Dataset(path=str(tmp_path / "rows.jsonl"))


def test_of_a_prompt_of_megabytes_the_beginning_is_counted(tmp_path):
    file = tmp_path / "rows.jsonl"
    prompts = [*"abcdefghij", "x" * 10_000_000, "y" * 10_000]
    file.write_text("\n".join(json.dumps({"prompt": p, "answer": "1"}) for p in prompts))
    task, seen = Dataset(path=str(file)), []

    def count(prompt):
        seen.append(len(prompt))
        return len(prompt)

    note = task.fit(count, 100)
    assert note.startswith("2 of 12 prompts longer than 100 tokens dropped")
    assert max(seen) < 20_000
    assert len(seen) <= 14  # each is counted once
    for way in ("cut_start", "cut_end"):
        task = Dataset(path=str(file), too_long=way)
        task.fit(count, 100)
        lengths = {len(e.prompt) for rows in task.rows.values() for e in rows}
        assert lengths == {1, 100}
