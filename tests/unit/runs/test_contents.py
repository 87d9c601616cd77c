"""Which files a recipe names, and when what they contain counts as changed."""

import os
import sys

import pytest

from rlzoo.runs import provenance as module
from rlzoo.runs.provenance import contents

FILES = {
    "d.jsonl": "{}\n" * 9,
    "shards/a/0.parquet": "0",
    "shards/.cache/x": "0",
    "start/tokenizer.json": "{}",
    "start/chat_template.jinja": "t",
    "start/model.safetensors": "w",
    "owns/pay.py": "def f(): import owns.other",
    "owns/__init__.py": "",
    "owns/other.py": "1",
    "set.py": "1",
    "question": "a column's name",
}
RECIPE = {
    "task.path": "d.jsonl",
    "task.test_path": "shards",
    "model.path": "start",
    "rewards.python.function": "owns.pay:f",
    "task.taskset": "set.py",
    "rewards.json_schema.schema": "{}",
    "rewards.regex.pattern": ".",  # a folder, but no place
    "task.games": ["d.jsonl", "a:b", "http://x:1"],
    "run.dir": "start",
    "seed": 3,
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "owns", raising=False)
    return tmp_path


def test_what_a_recipe_names(place):
    found = contents(RECIPE)
    assert {key: text.rpartition(" ")[0] for key, text in found.items()} == {
        "task.path": "d.jsonl",
        "task.test_path": "shards",
        "model.path": "start",
        "rewards.python.function": f"{place / 'owns/pay.py'}",
        "task.taskset": "set.py",
        "task.games": "d.jsonl",
    }


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("d.jsonl", {"task.path", "task.games"}),
        ("shards/a/0.parquet", {"task.test_path"}),
        ("shards/1.parquet", {"task.test_path"}),  # a new one
        ("start/chat_template.jinja", {"model.path"}),
        ("start/model.safetensors", {"model.path"}),
        ("owns/pay.py", {"rewards.python.function"}),
        ("set.py", {"task.taskset"}),
        ("owns/other.py", set()),
        ("shards/.cache/x", set()),
        ("question", set()),
    ],
)
def test_a_change_counts_where_the_recipe_names_it(file, keys, place):
    before = contents(RECIPE)
    old = FILES.get(file, "")
    (place / file).write_text("#" * len(old) or "new")  # of the same size
    after = contents(RECIPE)
    assert {key for key in before if before[key] != after[key]} == keys


def test_other_names_and_times_are_no_change(place):
    before = contents(RECIPE)["model.path"]
    os.utime(place / "start/tokenizer.json", (1, 1))
    (place / "start").rename(place / "moved")
    after = contents({"model.path": str(place / "moved")})["model.path"]
    assert after.rpartition(" ")[2] == before.rpartition(" ")[2]


def test_of_a_large_file_evenly_spaced_parts_are_read(place, monkeypatch):
    monkeypatch.setattr(module, "MOST", 8)
    monkeypatch.setattr(module, "PIECE", 2)
    file = place / "d.jsonl"
    file.write_bytes(bytes(30))

    def seen(at):
        before = contents({"task.path": "d.jsonl"})
        file.write_bytes(bytes(at) + b"x" + bytes(29 - at))
        changed = contents({"task.path": "d.jsonl"}) != before
        file.write_bytes(bytes(30))
        return changed

    assert [at for at in range(30) if seen(at)] == [0, 1, 9, 10, 18, 19, 28, 29]
    file.write_bytes(bytes(31))
    longer = contents({"task.path": "d.jsonl"})
    file.write_bytes(bytes(30))
    assert contents({"task.path": "d.jsonl"}) != longer
