"""Damaged and foreign files: one line that names the file, and nothing half written."""

import gzip
import json
import zipfile

import numpy as np
import pytest

import rlzoo
from helpers.made_up_sources import SOURCES, episode, lines, wandb_values
from rlzoo.cli import parser_of
from rlzoo.errors import RlzooError
from rlzoo_lab.imports import command as verb

JSON_LINES = {
    "cut": '{"step": 1, "critic/score/mean": 0.5}\n{"step": 2, "cri',
    "a list": '{"step": 1, "a": 1}\n[1, 2]\n',
    "a text": '{"step": 1, "a": 1}\nhello\n',
    "deep": '{"step": 1, "a": 1}\n' + "[" * 100_000,
    "no step": '{"step": 1, "a": 1}\n{"loss": 1}\n',
    "half a step": '{"step": 1.5, "a": 1}\n',
    "a step before 0": '{"step": -1, "a": 1}\n',
    "no number of a step": '{"step": NaN, "a": 1}\n',
    "an endless step": '{"step": Infinity, "a": 1}\n',
    "a text as step": '{"step": "1", "a": 1}\n',
    "a truth as step": '{"step": true, "a": 1}\n',
    "a step of hundreds of digits": '{"step": ' + "9" * 400 + ', "a": 1}\n',
    "a number of too many digits": '{"step": 1, "a": ' + "9" * 5000 + "}\n",
    "data is a list": '{"step": 1, "data": {"a": 1}}\n{"step": 2, "data": [1]}\n',
    "no metrics": '{"name": "a"}\n{"name": "b"}\n',
    "latin": b'{"step": 1, "a": 1}\n' + b'{"step": 2, "\xe9": 1}\n',
    "bytes": b"\x00\xff\x00\xff" * 100,
    "blank": " \n\n",
    "no numbers": '{"step": 1, "a": {"_type": "table", "n": 1}}\n{"step": 2, "a": "x"}\n',
    "chat data": '{"messages": [{"role": "user", "content": "hi"}]}\n',
    "verl rollouts, no step": '{"input": "a", "output": "b", "score": 1}\n',
    "verl rollouts, text as score": '{"input": "a", "output": "b", "score": "x", "step": 1}\n',
    "tokens of other lengths": '{"step": 0, "token_ids": [1], "loss_mask": [true], '
    '"advantages": [1, 2], "trainer_logprobs": [1], "inference_logprobs": [1]}\n',
    "tokens that are texts": '{"step": 0, "token_ids": [1], "loss_mask": [true], '
    '"advantages": ["a"], "trainer_logprobs": [1], "inference_logprobs": [1]}\n',
    "traces without a folder of their step": '{"task": {}, "traces": []}\n',
    "tokens, no mask": '{"step": 0, "token_ids": [1], "loss_mask": null}\n',
}
STATES = {
    "cut": '{"log_history": [{"step": 1, "rew',
    "no history": '{"global_step": 3}',
    "history is a text": '{"log_history": "none"}',
    "history of numbers": '{"log_history": [1, 2]}',
    "history without steps": '{"log_history": [{"reward": 0.5}]}',
    "empty history": '{"log_history": []}',
    "deep": "[" * 100_000,
    "latin": b'{"log_history": [{"step": 1, "\xe9": 2}]}',
    "html": "<html>404</html>",
    "pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
}
TABLES = {
    "one name twice": "Step,a,a\n1,2,3\n",
    "no name": "Step,\n1,2\n",
    "too many cells": "Step,a\n1,2,3\n",
    "too few cells": "Step,a\n1,2\n2\n",
    "no step": "name,score\na,0.5\n",
    "a text as step": "Step,a\none,2\n",
    "an open quote": 'Step,a\n1,"2\n',
    "a header only": "Step,a\n",
    "bytes": b"\xff\xfeS\x00t\x00",
    "nan as step": "Step,a\nnan,2\n",
}
LOGS = {
    "verl, no number": "step:1 - actor/lr:fast\n",
    "verl, no name": "step:1 - a:1 - :2\n",
    "slime, cut": "rollout 0: {'rollout/raw_reward': 0.5, 'roll\n",
    "slime, code": "rollout 0: {'rollout/raw_reward': open('x')}\n",
    "slime, deep": "rollout 0: {'a/b': " + "(" * 5000 + "}\n",
    "slime, no numbers": "rollout 0: {'rollout/prompt': 'a'}\n",
    "verl, a long step": f"step:{'9' * 5000} - a/b:1\n",
    "slime, a long step": f"rollout {'9' * 5000}: {{'a/b': 1}}\n",
    "slime, a long number": f"rollout 0: {{'a/b': {'9' * 5000}}}\n",
    "skyrl, a long step": f"Step {'9' * 5000}: \n{{'a/b': '1'}}\n",
    "skyrl, cut": "Step 1: \n{'reward/avg_raw_reward': '0.5',\n",
    "skyrl, a list": "Step 1: \n{1, 2}\n",
    "a program's": "hello\nworld\n",
    "latin": b"step:1 - a\xe9:1\n",
}
CASES = [
    *(("metrics.jsonl", name, text) for name, text in JSON_LINES.items()),
    *(("trainer_state.json", name, text) for name, text in STATES.items()),
    *(("export.csv", name, text) for name, text in TABLES.items()),
    *(("train.log", name, text) for name, text in LOGS.items()),
    ("run.wandb", "foreign", "hello"),
    ("run.wandb", "empty", b":W&B\xe1\xbe\x00"),
    ("metrics.jsonl.gz", "compressed", gzip.compress(b'{"step": 1, "a": 1}\n', mtime=0)),
    ("run.wandb", "a deep value", wandb_values(x=b"[" * 100_000)),
    ("0.pt", "rollouts, cut", b"PK\x03\x04 rollout_id samples"),
    ("weights.safetensors", "weights", b"\x00" * 64),
    ("notes.md", "foreign", "# step 1"),
    ("events.out.tfevents.1.host", "foreign", "hello, I am a text" * 9),
    ("events.out.tfevents.1.host", "zeros", b"\x00" * 99),
    ("completions_00001.parquet", "cut", b"PAR1" + b"\x00" * 64),
]


def refused(source, out, *words):
    """The one line that a source gives; nothing may be left of its run."""
    parsed = parser_of("import").parse_args([str(source), "--out", str(out), *words])
    with pytest.raises(RlzooError) as found:
        verb.run(parsed)
    assert not list(out.parent.iterdir())
    line = str(found.value)
    assert "\n" not in line
    assert len(line) < 600
    assert str(source) in line
    return line


@pytest.mark.parametrize(("file", "name", "text"), CASES, ids=lambda x: str(x)[:24])
def test_a_line_names_the_file_and_nothing_is_written(tmp_path, file, name, text):
    if file.endswith("parquet"):
        pytest.importorskip("pyarrow")
    if "tfevents" in file:
        pytest.importorskip("tensorboard")
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    path = tmp_path / "in" / file
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for source in (path, path.parent):
        refused(source, tmp_path / "out" / "run")


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_is_cut_or_changed_is_read_right_or_refused(tmp_path, name):
    """Every file of a source, cut at three places and with a byte changed at three: figures that
    are read are the trainer's, or a line names the damage."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("tensorboard")
    SOURCES[name](tmp_path / "in")
    (tmp_path / "out").mkdir()
    wrong = 0
    for path in sorted(p for p in (tmp_path / "in").rglob("*") if p.is_file()):
        whole = path.read_bytes()
        for share in (0.1, 0.5, 0.9):
            at = int(len(whole) * share)
            for changed in (whole[:at], whole[:at] + b"\x07" + whole[at + 1 :]):
                path.write_bytes(changed)
                wrong += not survives(tmp_path)
        path.write_bytes(whole)
    assert wrong, "no damage was found"


def survives(tmp_path):
    """Whether a source is imported; RlzooError is the only other end."""
    out = tmp_path / "out" / "run"
    parsed = parser_of("import").parse_args([str(tmp_path / "in"), "--out", str(out)])
    try:
        verb.run(parsed)
    except RlzooError:
        assert not out.exists()
        return False
    for line in (out / "metrics.jsonl").read_text().splitlines():
        assert isinstance(json.loads(line)["step"], int)
    out.rename(tmp_path / f"read-{len(list(tmp_path.iterdir()))}")
    return True


def test_damaged_arguments_name_their_file(tmp_path):
    pytest.importorskip("pyarrow")
    SOURCES["trl"](tmp_path / "in")
    path = tmp_path / "in" / "checkpoint-3" / "training_args.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("training_args/data.pkl", b"\x80\x02N.")
    (tmp_path / "out").mkdir()
    assert str(path) in refused(tmp_path / "in", tmp_path / "out" / "run")


@pytest.mark.parametrize(
    "changed", [{"rewards": {"right": {"a": 1}}}, {"nodes": None}, {"agent": None}]
)
def test_a_damaged_trace_of_prime_rl_is_named(tmp_path, changed):
    line = episode("2", 1.0, 0.5)
    line["traces"][0] |= changed
    path = tmp_path / "step_1" / "train" / "effective" / "traces.jsonl"
    lines(path, [episode("3", 0.0, -0.5), line])
    (tmp_path / "out").mkdir()
    assert "line 2" in refused(path, tmp_path / "out" / "run")


def nested(first, form):
    """YAML in which each of eleven anchors stands for nine times the one before."""
    text = f"a0: &a0 {first}\n"
    for i in range(1, 12):
        text += form.format(i, ", ".join(f"k{j}: *a{i - 1}" for j in range(9)),
                            ", ".join([f"*a{i - 1}"] * 9)) + "\n"  # fmt: skip
    return text


SETTINGS = {
    "anchors": nested("{x: 1}", "a{0}: &a{0} {{{1}}}"),
    "merged anchors": nested("{x: 1}", "a{0}: &a{0} {{<<: [{2}]}}"),
    "anchors of lists": nested("[x]", "a{0}: &a{0} [{2}]") + "data: {train_files: *a11}\n",
    "an anchor in itself": "a: &a {b: *a}\n",
    "deep": "{a: " * 5000 + "1" + "}" * 5000,
    "a list": "- one\n- two\n",
    "empty": "# nothing\n",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_cannot_be_read_are_a_note(tmp_path, name):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "metrics.jsonl").write_text('{"step": 1, "critic/score/mean": 0.5}\n')
    (tmp_path / "in" / "config.yaml").write_text(SETTINGS[name])
    words = [str(tmp_path / "in"), "--out", str(tmp_path / "run")]
    result = verb.run(parser_of("import").parse_args(words))
    assert any("config.yaml" in note for note in result.notes)
    assert result.document["recipe"] == {"imported.from": "verl"}


def test_a_table_of_too_many_rows_is_refused_before_it_is_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_001, "int8")), pa.array(["p"]))
    path = tmp_path / "in" / "completions_00001.parquet"
    (tmp_path / "out").mkdir()
    path.parent.mkdir()
    write_table(pa.table({"step": one, "prompt": one, "completion": one}), path)
    assert "rows" in refused(path, tmp_path / "out" / "run")


@pytest.mark.parametrize("kept", [
    '{"step": 1, "critic/sc\\ud800ore": 1.0, "critic/score/mean": 0.5}\n',
    '{"step": 1, "critic/score/mean": 0.5, "val-core/a/reward/mean@1": ' + "9" * 400 + "}\n",
    '{"step": 1, "critic/score/mean": 1e308, "a": 1}\n{"step": 2, "critic/score/mean": -1e308}\n',
    '{"step": 1, "critic/score/mean": 5e-324}\n{"step": 2, "critic/score/mean": 5e-324}\n',
    "".join(f'{{"step": {n}, "val-core/a/reward/mean@1": {x}, "critic/score/mean": 1}}\n'
            for n, x in ((1, 1e308), (2, -1e308), (3, 1e308))),
], ids=["half a character", "400 digits", "large", "small", "large evaluations"])  # fmt: skip
def test_what_is_read_has_a_page_and_a_place_in_a_comparison(tmp_path, kept):
    (tmp_path / "a.jsonl").write_text(kept)
    (tmp_path / "b.jsonl").write_text('{"step": 1, "critic/score/mean": 0.5}\n')
    for name in "ab":
        rlzoo.verb("import", tmp_path / f"{name}.jsonl", out=tmp_path / name, seed=0)
    rlzoo.report(tmp_path / "a", out=tmp_path / "a.html")
    assert "<svg" in (tmp_path / "a.html").read_text()
    try:
        rlzoo.compare(tmp_path / "a", tmp_path / "b")
    except RlzooError:
        assert "e308" in kept


def test_half_a_character_in_a_response_is_written_as_a_mark(tmp_path):
    row = '{"input": "hi \\ud83d", "output": "a\\ud83d\\ude00b", "score": 1.0, "step": 1}\n'
    (tmp_path / "1.jsonl").write_text(row)
    rlzoo.verb("import", tmp_path / "1.jsonl", out=tmp_path / "run")
    sample = json.loads((tmp_path / "run" / "samples.jsonl").read_text())
    assert (sample["prompt"], sample["response"]) == ("hi \ufffd", "a\U0001f600b")
