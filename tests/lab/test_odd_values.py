"""What a run's files hold that no run writes: an answer, or one line that names the file."""

import json
import random

import pytest
import yaml

from helpers.made_up_runs import made_up_rows, made_up_run
from rlzoo.cli import main
from rlzoo.errors import RunError
from rlzoo.recipe.files import parse_yaml
from rlzoo.runs.folder import RunFolder
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.record import read_finished, read_record
from rlzoo_lab.view.display.run import samples

VALUES = [10**400, -(10**400), 10**20, 1e308, -1e308, 5e-324, 1e-310, 1e200, float("nan"),
          float("inf"), True, None, "x", [], {}]  # fmt: skip
LINES = ["step", "eval/accuracy", "reward/mean", "perf/tokens", "actor/ref_kl_per_response"]
SUMMARY = ["eval_after", "eval_before", "seconds", "tokens", "steps", "eval_metric", "task",
           "imported", "eval_greedy_after"]  # fmt: skip
KEYS = ["seed", "eval.samples", "train.steps", "estimator.lam", "kl.coef", "rewards", "task.name"]
READERS = (["compare", "."], ["compare", ".", "--details", "--metric", "accuracy"],
           ["report", "a--seed0"], ["doctor", "a--seed0"])  # fmt: skip


def put(run, file, key, value):
    path = run / file
    if file == "metrics.jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [{k: value if k == key else v for k, v in line.items()} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return
    tree = yaml.safe_load(path.read_text())
    *above, last = key.split(".") if file == "recipe.yaml" else [key]
    at = tree
    for part in above:
        at = at.setdefault(part, {})
    at[last] = value
    path.write_text(json.dumps(tree))  # which is YAML


@pytest.mark.parametrize(
    ("file", "key"),
    [("metrics.jsonl", key) for key in LINES]
    + [("summary.json", key) for key in SUMMARY]
    + [("recipe.yaml", key) for key in KEYS],
)
def test_a_value_that_no_run_writes(file, key, tmp_path, monkeypatch, capsys):
    for i, value in enumerate(random.Random(key).sample(VALUES, 5)):
        place = tmp_path / str(i)
        rows = {"a": (0.4, {"estimator__lam": 0.5}), "b": (0.6, {"estimator__lam": 0.9})}
        made_up_rows(place, rows, 2)
        monkeypatch.chdir(place)
        for run in sorted(place.iterdir())[: 1 if i % 2 else 4]:
            put(run, file, key, value)
        for words in READERS:
            status = main(words)
            said = capsys.readouterr().err
            assert status == 0 or (status in (1, 2) and said.count("\n") <= 2), (value, words)


def test_a_run_with_such_a_recipe_or_summary_is_not_compared_and_the_reason_is_said(tmp_path):
    for i, (file, key, value, named) in enumerate(
        [("recipe.yaml", "kl.coef", [], "kl.coef"), ("recipe.yaml", "seed", None, "seed"),
         ("summary.json", "seconds", "x", "seconds"), ("summary.json", "task", None, "task")]
    ):  # fmt: skip
        run = made_up_run(tmp_path / str(i), seed=0, after=0.5)
        put(run, file, key, value)
        said = read_finished(run)
        assert isinstance(said, str)
        assert named in said
    with pytest.raises(RunError):
        RunFolder(tmp_path / "2").summary()


def test_a_number_that_overflows_is_an_infinity():
    lines = Columns([{"step": 1, "x": 1.0}, {"step": 2, "x": 10**20}, {"step": 3, "x": -(10**400)},
                     {"step": 4, "x": 1e200}])  # fmt: skip
    assert [line["x"] for line in lines] == [1.0, 1e20, float("-inf"), float("inf")]
    assert lines.not_finite == (3, ["x"])
    assert list(lines.column("x")[1]) == [1.0, 1e20]


def bomb(start, more, levels=30):
    return "\n".join([f"a0: &a0 {start}", *(f"a{i}: &a{i} " + more.format(i - 1)
                                            for i in range(1, levels))])  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {b: *a}",
        "a: &a [[*a]]",
        bomb("{x: 1}", "{{p: *a{0}, q: *a{0}}}"),
        bomb("[1, 1]", "[*a{0}, *a{0}, *a{0}]"),
        bomb("x", "{{p: *a{0}}}", 1000),
        "a: " + "9" * 5000,
        "[" * 5000,
        "a: *b",
        "a: 1:30",
        "a: !!python/object:os.system x",
        "a: \x00",
    ],
)
def test_odd_yaml_of_a_run_is_one_line_at_once(text, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_yaml(text)
    run = made_up_run(tmp_path / "run", seed=0, after=0.5)
    (run / "recipe.yaml").write_text(text)
    assert "recipe.yaml" in read_record(run).troubles[0]
    for verb in ("report", "doctor", "compare", "model export", "resume", "eval"):
        out = [str(tmp_path / "out")] if verb == "model export" else []
        assert main([*verb.split(), str(run), *out]) in (0, 1, 2)
        assert capsys.readouterr().err.count("\n") <= 2


def test_aliases_that_stand_for_little_are_read():
    assert parse_yaml("a: &a {b: 1}\nc: *a\nd: {<<: *a, e: &e [2]}\nf: *e") == {
        "a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": [2]}, "f": [2],
    }  # fmt: skip


def test_samples_that_lack_fields_are_shown(tmp_path):
    lines = [{"step": 1}, {"step": 1, "prompt": 1, "score": "x"}, {"step": 2, "answer": "a",
             "response": "b", "score": 10**400}, {"step": 3, "score": 0.5}]  # fmt: skip
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    table = samples(list(RunFolder(tmp_path).lines("samples.jsonl")))
    assert table.columns[-1].cells == ["?", "?", "?", "0.50"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 3000, "9" * 5000, "[]", "[1]", "null"])
def test_an_odd_provenance_is_none(text, tmp_path, capsys):
    run = made_up_run(tmp_path / "run", seed=0, after=0.5)
    for content in (text, '[{"components": {"task x": 1}, "versions": {"rlzoo": []}}]'):
        (run / "provenance.json").write_text(content)
        for verb in ("doctor", "report", "compare"):
            assert main([verb, str(run)]) in (0, 1)
