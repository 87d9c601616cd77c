"""The forms of the world's training data: which columns have the prompt, and which the response."""

import json

import pytest

from helpers import ROOT
from helpers.rows import USER, said, write
from rlzoo.errors import DataError
from rlzoo_lab.supervised import forms
from rlzoo_lab.supervised.pairs import (
    read_demonstrations,
    read_preferences,
    read_solutions,
    read_verdicts,
)

SYSTEM = {"role": "system", "content": "s"}
HUMAN, GPT = {"from": "human", "value": "hi"}, {"from": "gpt", "value": "a"}
WORSE = {"from": "gpt", "value": "b"}
SCHEMA = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "3"}
HH = "\n\nHuman: hi\n\nAssistant:"

DEMONSTRATIONS = [
    ({"prompt": "p", "response": "a"}, ("p", "a")),
    ({"prompt": "p", "completion": "a"}, ("p", "a")),
    ({"prompt": [USER], "completion": [said("a")]}, ([USER], "a")),
    ({"prompt": json.dumps([USER]), "completion": json.dumps([said("a")])}, ([USER], "a")),
    ({"messages": [USER, said("a")]}, ([USER], "a")),
    ({"messages": json.dumps([USER, said("a")])}, ([USER], "a")),
    ({"messages": [USER, said([{"type": "text", "text": "a"}])]}, ([USER], "a")),
    ({"conversations": [HUMAN, GPT]}, ([USER], "a")),
    ({"conversations": [HUMAN, GPT], "system": "s"}, ([SYSTEM, USER], "a")),
    ({"conversations": [HUMAN, GPT], "system": ""}, ([USER], "a")),
    ({"conversations": [{**HUMAN, "from": "Human"}, {**GPT, "from": "GPT"}]}, ([USER], "a")),
    ({"conversations": [{"from": "system", "value": "s"}, HUMAN, GPT], "system": "s"},
     ([SYSTEM, USER], "a")),
    ({"conversations": [HUMAN, GPT], "tools": json.dumps([SCHEMA["function"]])},
     ([{**USER, "tools": [SCHEMA]}], "a")),
    ({"conversations": [HUMAN, {"from": "function_call", "value": json.dumps(CALL["function"])},
                        {"from": "observation", "value": "3"}, GPT]}, ([USER, CALLS, RESULT], "a")),
    ({"messages": [USER, CALLS]}, ([USER], CALLS)),
    ({"messages": [SYSTEM, USER, CALLS], "tools": [SCHEMA]},
     ([{**SYSTEM, "tools": [SCHEMA]}, USER], CALLS)),
    ({"messages": [USER, {**said("a"), "reasoning_content": "so"}]},
     ([USER], {**said("a"), "reasoning_content": "so"})),
    ({"prompt": [USER], "completion": [CALLS, RESULT, said("a")]}, ([USER, CALLS, RESULT], "a")),
    ({"instruction": "Add.", "input": "1+1", "output": "2"}, ("Add.\n1+1", "2")),
    ({"instruction": "Add.", "input": "", "output": "2"}, ("Add.", "2")),
    ({"instruction": "Add.", "input": "1+1", "output": "2", "system": "s"},
     ([SYSTEM, {"role": "user", "content": "Add.\n1+1"}], "2")),
    ({"instruction": "hi", "input": "", "output": "a", "history": [["hi", "x"]]},
     ([USER, said("x"), USER], "a")),
    ({"instruction": "Add.", "context": "1+1", "response": "2", "category": "x"},
     ("Add.\n1+1", "2")),
    ({"query": "hi", "response": "a", "history": '[["hi", "x"]]', "system": "s"},
     ([SYSTEM, USER, said("x"), USER], "a")),
    ({"query": "hi", "response": "a", "history": "[]", "images": "[]", "tools": "[]"}, ("hi", "a")),
    ({"query": "hi", "response": "a", "history": [], "system": "", "label": "False news"},
     ("hi", "a")),
    ({"prompt": None, "response": None, "messages": [USER, said("a")]}, ([USER], "a")),
    ({"prompt": "p", "messages": [USER, said("a")]}, ([USER], "a")),
    ({"messages": [USER, said("a")], "label": True}, ([USER], "a")),
    ({"messages": [{**USER, "weight": 0}, {**said("a"), "weight": 1.0}], "images": []},
     ([{**USER, "weight": 0}], "a")),
]  # fmt: skip

PREFERENCES = [
    ({"prompt": "p", "chosen": "a", "rejected": "b"}, ("p", "a", "b")),
    ({"prompt": "p", "chosen": "a", "rejected": "b", "messages": [USER, said("a")]},
     ("p", "a", "b")),
    ({"chosen": [USER, said("a")], "rejected": [USER, said("b")]}, ([USER], "a", "b")),
    ({"prompt": "hi", "chosen": [USER, said("a")], "rejected": [USER, said("b")]},
     ([USER], "a", "b")),
    ({"chosen": HH + " a", "rejected": HH + " b"}, (HH, " a", " b")),
    ({"conversations": [HUMAN], "chosen": GPT, "rejected": WORSE}, ([USER], "a", "b")),
    ({"conversations": [HUMAN], "chosen": [GPT], "rejected": [WORSE]}, ([USER], "a", "b")),
    ({"instruction": "Add.", "input": "1", "chosen": "a", "rejected": "b"}, ("Add.\n1", "a", "b")),
    ({"question": "hi", "system": "s", "chosen": "a", "rejected": "b"},
     ([SYSTEM, USER], "a", "b")),
    ({"messages": [USER, said("a")], "rejected_response": "b"}, ([USER], "a", "b")),
    ({"messages": [USER, said("a")], "rejected_messages": [USER, said("b")]}, ([USER], "a", "b")),
    ({"chosen_messages": [USER, said("a")], "rejected_messages": [USER, said("b")]},
     ([USER], "a", "b")),
    ({"query": "q", "response": "a", "rejected_response": "b"}, ("q", "a", "b")),
    ({"input": {"messages": [USER], "tools": []}, "preferred_output": [said("a")],
      "non_preferred_output": [said("b")]}, ([USER], "a", "b")),
    ({"prompt": [USER], "chosen": [CALLS], "rejected": [said("b")]}, ([USER], CALLS, "b")),
]  # fmt: skip

VERDICTS = [
    ({"prompt": "p", "completion": "a", "label": True}, ("p", "a", True)),
    ({"prompt": "p", "response": "a", "label": "False"}, ("p", "a", False)),
    ({"prompt": [USER], "completion": [said("a")], "label": 0}, ([USER], "a", False)),
    ({"messages": [USER, said("a")], "label": False}, ([USER], "a", False)),
    ({"conversations": [HUMAN, GPT], "label": "true"}, ([USER], "a", True)),
    ({"instruction": "p", "input": "", "output": "a", "kto_tag": True}, ("p", "a", True)),
    ({"instruction": "p", "output": "a", "label": 1}, ("p", "a", True)),
    ({"query": "p", "response": "a", "label": "0"}, ("p", "a", False)),
]

SOLUTIONS = [
    ({"prompt": "p", "completions": ["a", "b"], "labels": [True, 0]},
     ("p", ("a", "b"), (True, False))),
    ({"prompt": [HUMAN], "completions": ["a"], "labels": ["true"]}, ([USER], ("a",), (True,))),
]  # fmt: skip

READERS = [
    (read_demonstrations, DEMONSTRATIONS), (read_preferences, PREFERENCES),
    (read_verdicts, VERDICTS), (read_solutions, SOLUTIONS),
]  # fmt: skip
CASES = [(read, row, expected) for read, rows in READERS for row, expected in rows]


@pytest.mark.parametrize(("read", "row", "expected"), CASES)
def test_each_form_is_recognised(read, row, expected, tmp_path):
    found = read(write(tmp_path / "a.jsonl", [row]))
    assert found.rows == [expected]
    assert len(found.forms) == 1


@pytest.mark.parametrize(("read", "rows"), READERS)
def test_every_form_has_a_row_here_and_a_line_on_the_page(read, rows, tmp_path):
    found = [read(write(tmp_path / "a.jsonl", [row])) for row, _ in rows]
    assert {some.forms[0].rpartition(" (")[0] for some in found} == set(read.forms)
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for columns in read.forms.values():
        assert all(f"`{name}`" in page for name in columns.split() if name != "-")


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (read_demonstrations, {"prompt": "p", "response": "a", "messages": [USER, said("a")]}),
        (read_demonstrations, {"prompt": "p", "response": "a", "completion": "b"}),
        (read_demonstrations, {"instruction": "p", "response": "a", "output": "b"}),
        (read_demonstrations, {"messages": [USER, said("a")], "conversations": [HUMAN, GPT]}),
        (read_demonstrations, {"prompt": "p", "chosen": "a", "rejected": "b"}),
        (read_demonstrations, {"messages": [USER, said("a")], "label": False}),
        (read_demonstrations, {"prompt": "p", "response": "a", "label": "False"}),
        (read_demonstrations, {"messages": [USER, {**said("a"), "weight": 0}]}),
        (read_demonstrations, {"messages": [USER, said("a")], "images": ["a.png"]}),
        (read_demonstrations, {"messages": [USER, said("")]}),
        (read_demonstrations, {"messages": [USER]}),
        (read_demonstrations, {"messages": [said("a")]}),
        (read_demonstrations, {"messages": "hi"}),
        (read_demonstrations, {"messages": '[{"role": "user", "content'}),
        (read_demonstrations, {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        (read_demonstrations, {"conversations": [HUMAN, GPT, HUMAN]}),
        (read_demonstrations, {"conversations": [{"from": "system", "value": "t"}, HUMAN, GPT],
                               "system": "s"}),
        (read_demonstrations, {"query": "p", "response": "a", "history": [["only"]]}),
        (read_demonstrations, {"query": "p", "response": "a", "history": "x"}),
        (read_demonstrations, {"query": "p", "response": "a", "system": 3}),
        (read_demonstrations, {"text": "a"}),
        (read_preferences, {"q": "p", "chosen": "a", "rejected": "b"}),
        (read_preferences, {"chosen": HH + " a", "rejected": "\n\nHuman: x\n\nAssistant: b"}),
        (read_preferences, {"messages": [USER], "rejected_response": "b"}),
        (read_verdicts, {"messages": [USER, said("a")], "label": "maybe"}),
    ],
)  # fmt: skip
def test_what_is_ambiguous_or_of_no_form_is_a_line(read, row, tmp_path, golden):
    with golden.refuses(DataError):
        read(write(tmp_path / "a.jsonl", [row]))


def test_an_option_settles_what_several_forms_fit(tmp_path):
    better = write(tmp_path / "b.jsonl", [{"chosen": HH + " a", "rejected": HH + " b"}])
    assert read_demonstrations(better, {"response": "chosen"}).rows == [(HH, " a")]
    row = {"prompt": "p", "response": "a", "messages": [USER, said("b")], "in": {"q": "r"}}
    file = write(tmp_path / "a.jsonl", [row])
    assert read_demonstrations(file, {"response": "messages"}).rows == [([USER], "b")]
    assert read_demonstrations(file, {"prompt": "prompt", "response": "response"}).rows == [
        ("p", "a")
    ]
    assert read_demonstrations(file, {"prompt": "in.q", "response": "response"}).rows == [
        ("r", "a")
    ]


def test_prompts_of_a_file_are_all_texts_or_all_messages(tmp_path):
    row = {"instruction": "hi", "output": "a"}
    found = read_demonstrations(write(tmp_path / "a.jsonl", [row, {**row, "system": "s"}])).rows
    assert [row.prompt for row in found] == [[USER], [SYSTEM, USER]]


def test_a_table_has_the_same_rows(tmp_path):
    """CSV has only text, and Parquet fills each message with the keys of all."""
    from pyarrow import Table
    from pyarrow import parquet as pq

    cell = json.dumps([USER, said("a")]).replace('"', '""')
    text = f'messages,label\n"{cell}",True\n'
    (tmp_path / "a.csv").write_text(text)
    assert read_verdicts(tmp_path / "a.csv").rows == [([USER], "a", True)]
    rows = [{"messages": [USER, CALLS]}, {"messages": [USER, CALLS, RESULT, said("a")]}]
    pq.write_table(Table.from_pylist(rows), tmp_path / "a.parquet")
    found = read_demonstrations(tmp_path / "a.parquet").rows
    assert found == [([USER], CALLS), ([USER, CALLS, RESULT], "a")]


def test_the_table_of_forms_names_each_columns_once():
    for table in (forms.DEMONSTRATIONS, forms.PREFERENCES, forms.VERDICTS, forms.SOLUTIONS):
        assert len(set(table.values())) == len(table)


def test_a_configuration_of_a_folder_is_named(tmp_path, capsys):
    from rlzoo.cli import main

    header = "---\nconfigs:\n" + "".join(
        f"- config_name: {name}\n  data_files: {name}.jsonl\n" for name in ("one", "two")
    )
    (tmp_path / "README.md").write_text(f"{header}---\n")
    for name in ("one", "two"):
        write(tmp_path / f"{name}.jsonl", [{"prompt": name, "response": "a"}])
    assert read_demonstrations(tmp_path, subset="two").rows == [("two", "a")]
    words = ["model", "sft", str(tmp_path), "--model", "nano", "--out", str(tmp_path / "out")]
    for more, fault in (([], "name the subset"), (["--subset", "on"], "did you mean 'one'")):
        assert main([*words, *more]) == 2
        assert fault in " ".join(capsys.readouterr().err.split())
