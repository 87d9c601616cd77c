"""Rows of files in the world's formats, columns within columns, messages in every spelling."""

import csv
import gzip
import io
import json
from types import SimpleNamespace

import pytest

from rlzoo.errors import DataError
from rlzoo_zoo.data import column, hold_out, messages_of, prompt_of, read

ROWS = [{"q": "1+1", "a": "2"}, {"q": 'ü, "x"\n;\t|', "a": "[1]"}, {"q": "3", "a": ""}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def table(separator):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerows([["q", "a"], *(row.values() for row in ROWS)])
    return text.getvalue()


def parquet():
    from pyarrow import Table
    from pyarrow import parquet as pq

    file = io.BytesIO()
    pq.write_table(Table.from_pylist(ROWS), file)
    return file.getvalue()


def packed(text):
    return gzip.compress(text.encode(), mtime=0)


FILES = {
    "a.jsonl": LINES,
    "bom.jsonl": b"\xef\xbb\xbf" + LINES.encode(),
    "crlf.jsonl": LINES.replace("\n", "\r\n"),
    "blank.jsonl": "\n" + LINES.replace("\n", "\n\n"),
    "a.jsonl.gz": packed(LINES),
    "packed.jsonl": packed(LINES),  # as `curl` leaves one
    "lines.json": LINES,
    "pretty.json": json.dumps(ROWS, indent=1),
    "short.json": json.dumps(ROWS),
    "array.jsonl": json.dumps(ROWS),
    "array.json.gz": packed(json.dumps(ROWS)),
    "wrapped.json": json.dumps({"version": "1", "data": ROWS}),
    "some.json": '{"data": [\n' + ",\n".join(map(json.dumps, ROWS)) + "\n]}",
    "long.json": json.dumps({"rows": ROWS, "count": 3}, indent=2),
    "a.csv": table(","),
    "bom.csv": b"\xef\xbb\xbf" + table(",").encode(),
    "crlf.csv": table(",").replace("a\n", "a\r\n"),
    "excel.csv": table(";"),
    "tabs.csv": table("\t"),
    "a.tsv": table("\t"),
    "a.csv.gz": packed(table(",")),
    "a.parquet": parquet(),
    "parquet.data": parquet(),
    "lines.txt": LINES,
    "nothing": json.dumps(ROWS, indent=1),
}  # fmt: skip


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", FILES)
def test_each_format_gives_the_same_rows(name, tmp_path):
    rows = list(read(str(put(tmp_path / name, FILES[name]))))
    assert [row.values for row in rows] == ROWS
    assert [row.fault for row in rows] == [""] * 3
    assert len({row.number for row in rows}) == 3
    (folder := tmp_path / "folder").mkdir()
    (tmp_path / name).rename(folder / name)
    if "." in name and "data" not in name and "txt" not in name:
        assert [row.values for row in read(str(folder))] == ROWS


MANY = {
    "x/train-0.jsonl": LINES, "x/train-1.jsonl": LINES, "x/test.jsonl": LINES[:30],
    "y/a.csv": table(","), "y/dev/b.csv": table(";"),
    "math/2.json": json.dumps(ROWS[0], indent=1), "math/10.json": json.dumps(ROWS[1]),
    "splits.json": json.dumps({"train": ROWS, "test": ROWS[:1]}),
    "z/README.md": "---\nconfigs:\n- config_name: one\n  data_files: [{split: train, path: 'a*'}]\n"
    "- config_name: two\n  data_files: b.jsonl\n---\nText.",
    "v/README.md": "---\nconfigs: [{config_name: m, data_dir: main}, {config_name: s, data_dir: .}]"
    "\n---",
    "v/main/train.jsonl": LINES, "v/main/test.csv": table(","), "v/more/train.jsonl": LINES,
    "z/a.jsonl": LINES, "z/b.jsonl": LINES[:24], "z/c.csv": "never,read\n",
    "w/.cache/hidden.jsonl": "{", "w/dataset_infos.json": "{}", "w/a.jsonl": LINES,
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "options", "count"),
    [
        ("x", {"split": "train"}, 6),
        ("x", {"split": "test"}, 1),
        ("x/train-*.jsonl", {}, 6),
        ("x/train-0.jsonl, y/a.csv,x/test.jsonl", {}, 7),
        ("**/*.jsonl", {}, 20),
        ("y", {"split": "train"}, 3),
        ("y", {"split": "validation"}, 3),
        ("math", {}, 2),
        ("splits.json", {"split": "train"}, 3),
        ("splits.json", {"split": "test"}, 1),
        ("z", {"subset": "one"}, 3),
        ("z", {"subset": "two"}, 1),
        ("v", {"subset": "m", "split": "train"}, 3),
        ("v", {"subset": "s", "split": "train"}, 6),
        ("x", {"subset": ".", "split": "train"}, 6),
        ("w", {}, 3),
    ],
)
def test_several_files_are_read_one_after_another(path, options, count, tmp_path, monkeypatch):
    for name, content in MANY.items():
        put(tmp_path / name, content)
    monkeypatch.chdir(tmp_path)
    rows = [row for row in read(path, **options) if row.values]
    assert len(rows) == count
    assert [row.number for row in rows] == sorted({row.number for row in rows})


PLAIN = {"q": "x", "a": "y"}
REFUSED = [
    ({"g.jsonl.gz": packed(LINES * 5_000)[:-40]}, "g.jsonl.gz"),
    ({"s.json": MANY["splits.json"]}, "s.json"),
    ({"t.csv": "q,q\n1,2\n"}, "t.csv"),
    ({"f/a.jsonl": LINES, "f/b.csv": "q\n1"}, "f"),
    ({"f/train.jsonl": LINES, "f/more.jsonl": LINES}, "f"),
    ({"f/train.jsonl": LINES, "f/test.jsonl": LINES}, "f"),
    ({"f/README.md": MANY["z/README.md"], "f/a.jsonl": LINES}, "f"),
    ({"f/README.md": "---\nconfigs: [a\n---\n", "f/a.jsonl": ""}, "f"),
    ({"f/a.txt": "x"}, "f"),
    ({"a.jsonl": LINES}, "a.jsonl,b.jsonl"),
    ({"a.jsonl": LINES}, "*.csv"),
]


@pytest.mark.parametrize(("files", "path"), REFUSED)
def test_what_is_not_read_is_a_line(files, path, golden, tmp_path, monkeypatch):
    for name, content in files.items():
        put(tmp_path / name, content)
    monkeypatch.chdir(tmp_path)
    with golden.refuses(DataError):
        list(read(path))


@pytest.mark.parametrize(
    ("name", "content", "line", "fault"),
    [
        ("a.csv", "q,a\n1,2\n3\n4,5\n", 3, "has 1 cells, but the header has 2"),
        ("a.csv", "q,a\n1,2\n3,4,5\n4,5\n", 3, "has 3 cells, but the header has 2"),
        ("a.csv", 'q,a\n1,2\n3,"4" 5\n4,5\n', 3, "not CSV"),
        ("a.csv", b"q,a\n1,2\n\xff,2\n4,5\n", 3, "not UTF-8"),
        ("a.csv", 'q,a\n"1\n1",2\n3\n4,5\n', 4, "has 1 cells"),
        ("a.csv", 'q,a\n1,2\n4,5\n3,"4\n', 4, "not CSV"),
        ("a.jsonl", '{"q": 1}\n{"q": "\\ud800"}\n{}\n', 2, "half a character"),
        ("a.json", '[{"q": 1},{"q": "\\ud800"},{}]', None, "half a character"),
        ("a.json", '[{"q": 1},\n[1],{}]', None, "not an object"),
        ("a.jsonl", b'{"q": 1}\n\xef\xbb\xbf{"q": 2}\n{"q": \xff}\n', 3, "not UTF-8"),
        ("a.jsonl", '{"q": 1\n{"q": 2}\n{}\n', 1, "not JSON"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(name, content, line, fault, tmp_path):
    rows = list(read(str(put(tmp_path / name, content))))
    (bad,) = (row for row in rows if row.fault)
    assert fault in bad.fault
    assert len(rows) == 3
    assert bad.place.endswith(f":{line}" if line else " row 1")


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("u.jsonl", LINES.encode("utf-16"), "UTF-16"),
        ("u.csv", table(",").encode("utf-16"), "UTF-16"),
        ("u.json", b"\xfe\xff", "UTF-16"),
        ("p.jsonl", "version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        ("g.jsonl.gz", b"\x1f\x8bnothing", "damaged .gz"),
        ("h.csv", '"q"x,a\n1,2\n', "not CSV"),
        ("h.tsv", b"q\xff\ta\n1\t2\n", "not UTF-8"),
        ("g.csv", packed(LINES)[:-20], "damaged .gz"),
    ],
)
def test_a_file_that_is_something_else_is_a_bad_row(name, content, fault, tmp_path):
    (bad,) = read(str(put(tmp_path / name, content)))
    assert bad.values is None
    assert fault in bad.fault


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('[\n{"q": 1},\n{"q": 2}\n{"q": 3}]', 4),
        ('[{"q": 1},\n {"q": 2},\n]', 3),
        ('{\n"data": [{"q": 1},\n{"q" 2}]}', 3),
        ('{"data": [{"q": 1}, {"q" 2}]}', 1),
        ('{"data": [\n{"q": 1},\n{"q": 2}\n', 4),
    ],
)
def test_a_damaged_array_is_named_by_the_damaged_line(content, line, tmp_path):
    (bad,) = read(str(put(tmp_path / "a.json", content)))
    assert bad.place.endswith(f"a.json:{line}")
    assert bad.fault.startswith("not JSON: ")


def test_a_format_that_was_named_is_held_to_the_content(tmp_path, golden):
    for name, format in (("a.csv", "jsonl"), ("a.json", "csv")):
        path = put(tmp_path / name, FILES.get(name, FILES["pretty.json"]))
        with golden.refuses(DataError):
            read(str(path), format=format)
    assert len(list(read(str(put(tmp_path / "table", table("|"))), format="csv"))) == 3


# ---------------------------------------------------------------- a folder is only a folder

SECRET = '{"q": "secret", "a": "1"}\n'


def readme(named):
    return f"---\nconfigs:\n- config_name: default\n  data_files: {json.dumps(named)}\n---\n"


@pytest.mark.parametrize(
    "named",
    [
        "{outside}/secret.jsonl", "../secret.jsonl", "a/../../secret.jsonl",
        "file://{outside}/secret.jsonl", "http://127.0.0.1:1/secret.jsonl",
        "hf://datasets/owner/name/secret.jsonl", ["a.jsonl", "../secret.jsonl"],
        [{"split": "train", "path": ["../*.jsonl"]}], "", "zip://a.jsonl::../secret.zip",
    ],
    ids=str,
)  # fmt: skip
def test_a_readme_names_no_file_outside(named, tmp_path, golden):
    put(tmp_path / "secret.jsonl", SECRET)
    named = json.loads(json.dumps(named).replace("{outside}", str(tmp_path)))
    put(tmp_path / "set" / "README.md", readme(named))
    put(tmp_path / "set" / "a.jsonl", LINES)
    with golden.refuses(DataError):
        list(read(str(tmp_path / "set")))


def test_a_set_of_the_hub_names_no_file_elsewhere(monkeypatch, golden):
    import datasets

    from rlzoo.lm import loading

    monkeypatch.setattr(loading, "reachable", lambda url: False)
    for file in ("/etc/passwd", "https://example.org/a.jsonl"):
        config = SimpleNamespace(data_files={"train": [file]})
        builder = SimpleNamespace(config=config)  # nothing is prepared, or downloaded
        monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, b=builder: b)
        with golden.refuses(DataError):
            read("owner/name")


def test_a_link_leads_to_no_file_outside(tmp_path, golden):
    put(tmp_path / "secret.jsonl", SECRET)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.jsonl").symlink_to("../secret.jsonl")
    with golden.refuses(DataError):
        read(str(tmp_path / "set"))
    # The hub's cache: links from a snapshot to blobs beside it.
    blob = put(tmp_path / "owner--name" / "blobs" / "1", LINES)
    folder = tmp_path / "owner--name" / "snapshots" / "main"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").symlink_to(blob)
    assert len(list(read(str(folder)))) == 3


def test_a_saved_set_names_no_file_outside(tmp_path, golden):
    import datasets

    datasets.Dataset.from_list([{"q": "secret"}]).save_to_disk(tmp_path / "own")
    datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS)).save_to_disk(tmp_path / "set")
    assert [row.values for row in read(str(tmp_path / "set"))] == ROWS
    state = tmp_path / "set" / "train" / "state.json"
    about = json.loads(state.read_text())
    for name in ("../../own/data-00000-of-00001.arrow", str(tmp_path / "own" / "x.arrow")):
        about["_data_files"] = [{"filename": name}]
        state.write_text(json.dumps(about))
        with golden.refuses(DataError):
            read(str(tmp_path / "set"))
    put(tmp_path / "set" / "dataset_dict.json", '{"splits": ["../own"]}')
    with golden.refuses(DataError):
        read(str(tmp_path / "set"))


# ---------------------------------------------------------------- columns

NESTED = {
    "a": {"b": [1, {"c": "x"}], "n": None, "d.e": "dotted"},
    "a.b": "literal", "text": '{"k": [1, 2]}', "twice": json.dumps('{"k": 3}'),
    "repr": "{'k': 'v', 'n': None}", "list": ["x", "y"], "none": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b", "literal"), ("a.n", None), ("a.d.e", "dotted"), ("a.n.x", None), ("none.x", None),
        ("text.k", [1, 2]), ("text.k.0", 1), ("twice.k", 3), ("repr.k", "v"), ("list.1", "y"),
        ("list.-1", "y"), ("list.2", None), ("list", ["x", "y"]),
    ],
)  # fmt: skip
def test_a_column_may_be_within_another(name, expected):
    assert column(NESTED, name) == expected


@pytest.mark.parametrize("name", ["b", "a.x", "a.b.c", "list.x", "text.x", "text.k.x", ".", "a."])
def test_a_path_that_leads_nowhere_is_no_column(name):
    with pytest.raises(KeyError):
        column(NESTED, name)


# ---------------------------------------------------------------- messages

HI = [{"role": "user", "content": "hi"}]
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
TOOL = {"name": "f", "description": "d", "parameters": {"type": "object"}}


def called(**more):
    return {"role": "assistant", "content": "", "tool_calls": [CALL], **more}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (HI, HI),
        (HI[0], HI),
        (json.dumps(HI), HI),
        (json.dumps(json.dumps(HI)), HI),
        (repr(HI), HI),
        ([{"from": "human", "value": "hi"}], HI),
        (json.dumps([{"from": "user", "value": "hi"}]), HI),
        ([{"role": "human", "content": "hi"}], HI),
        ([{"role": "user", "content": "hi", "name": None, "tool_calls": None}], HI),
        ([{"role": "user", "content": [{"type": "text", "text": "h"}, {"text": "i"}]}], HI),
        ([{"role": "assistant", "content": [{"type": "reasoning", "value": "so"},
           {"type": "text", "value": "a"}, {"type": "tool_call", "value": json.dumps(CALL)}]}],
         [{**called(), "content": "a", "reasoning_content": "so"}]),
        ([{"from": "gpt", "value": "a"}], [{"role": "assistant", "content": "a"}]),
        ([{"from": "observation", "value": "3"}], [{"role": "tool", "content": "3"}]),
        ([{"role": "assistant", "content": None, "tool_calls": [CALL]}], [called()]),
        ([{"role": "assistant", "tool_calls": json.dumps([CALL])}], [called()]),
        ([{"role": "assistant", "content": "", "tool_calls": [
            {"id": "7", "function": {"name": "f", "arguments": '{"x": 1}'}}]}],
         [called(tool_calls=[{**CALL, "id": "7"}])]),
        ([{"role": "assistant", "content": None,
           "function_call": {"name": "f", "arguments": '{"x": 1}'}}], [called()]),
        ([{"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'}], [called()]),
        ([{"role": "tool_call", "content": '[{"name": "f", "parameters": {"x": 1}}]'}], [called()]),
        # Of a table: each struct has the keys of all.
        ([{"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1, "y": None}}}]}], [called()]),
        ([{"role": "tool", "content": "3", "name": "f", "tool_call_id": "7"}],
         [{"role": "tool", "content": "3", "name": "f", "tool_call_id": "7"}]),
        ([{"role": "assistant", "content": "a", "reasoning_content": "so"}],
         [{"role": "assistant", "content": "a", "reasoning_content": "so"}]),
        ([{"role": "system", "content": "s", "tools": json.dumps([TOOL])}],
         [{"role": "system", "content": "s", "tools": [{"type": "function", "function": TOOL}]}]),
    ],
)  # fmt: skip
def test_messages_in_every_spelling(given, expected):
    assert messages_of(given) == expected
    assert messages_of(expected) == expected
    assert prompt_of(given) == expected


IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    "given",
    [
        [],
        [{"role": "user"}],
        [{"content": "hi"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": {"a": 1}}],
        ["hi"],
        3,
        [{"role": "user", "content": [IMAGE]}],
        [{"role": "user", "content": ["hi"]}],
        [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
        [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "x=1"}]}],
        [{"from": "function_call", "value": "f(1)"}],
        json.dumps(HI)[:-1],
        json.dumps(HI).replace(":", "=", 1),
        "[{'role': 'user', 'content': 'a'}\n {'role': 'user', 'content': 'b'}]",
        "array([{'role': 'user', 'content': 'a'}], dtype=object)",
        '[{"role": "user", "content": "\\ud800"}]',
    ],
)
def test_damaged_messages_are_never_a_text(given, golden):
    with golden.refuses(ValueError):
        prompt_of(given)


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2]", '"quoted"', "{x", '{"role": "user"}', '[{"a": 1}]', "[[", "{'a': 1}", "[x](y)"],
)
def test_other_text_stays_a_text(text):
    assert prompt_of(text) == text


def test_tools_are_declared_by_the_first_message(golden):
    declared = [{"type": "function", "function": TOOL}]
    for tools in ([TOOL], declared, json.dumps([TOOL]), TOOL, [{**TOOL, "strict": None}]):
        assert prompt_of(HI, tools) == [{**HI[0], "tools": declared}]
    for none in (None, [], "", "[]"):
        assert prompt_of(HI, none) == HI
    for wrong in ("f, g", 3, True, ["f"], [[TOOL]]):
        with golden.refuses(ValueError):
            prompt_of(HI, wrong)


# ---------------------------------------------------------------- held-out rows


def test_all_rows_of_a_prompt_are_on_one_side():
    rows = [(prompt, n) for prompt in "abcd" for n in range(3)]
    training, held = hold_out(rows, lambda row: row[0], 0.5, 0)
    assert len(training) == len(held) == 6
    assert {p for p, _ in training}.isdisjoint(p for p, _ in held)
