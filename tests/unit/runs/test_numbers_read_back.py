"""Numbers of a run read back: in single precision for the doctor, and what is not a number."""

import math

import pytest

from rlzoo.errors import RunError
from rlzoo.runs.disk import read_json
from rlzoo.runs.folder import RunFolder
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.record import read_finished, read_record

LINES = [{"step": n, "x": n / 3 + 1e-9, "y": n, "lr": 1e-45 * (n + 1)} for n in range(50)]


def test_a_number_is_off_by_a_float32_at_most():
    steps, values = Columns(LINES, single=True).column("x")
    assert list(steps) == list(range(50))
    for n, x in enumerate(values):
        assert math.isclose(x, LINES[n]["x"], rel_tol=1e-7)


def test_it_takes_half_the_memory():
    exact, single = Columns(LINES), Columns(LINES, single=True)
    assert exact.numbers["x"].itemsize == 8
    assert single.numbers["x"].itemsize == 4


@pytest.mark.parametrize("value", [1e-45, 1e-300, 1e99, -1e39])
def test_what_float32_does_not_reach_is_kept_as_it_is(value):
    columns = Columns([{"step": 0, "x": 0.5}, {"step": 1, "x": value}], single=True)
    assert math.isclose(columns[1]["x"], value, rel_tol=1e-7)


def test_whole_numbers_stay_exact():
    assert list(Columns([{"step": 2**40 + 1}], single=True).column("step")[0]) == [2**40 + 1]


def test_an_evaluation_with_a_text_for_a_number_is_left_out_and_named(tmp_path):
    (tmp_path / "recipe.yaml").write_text("# x\nseed: 0\n")
    lines = ['{"step": 0, "eval/score": 0.5}', '{"step": 1, "eval/score": "x"}']
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    record = read_record(tmp_path)
    assert [line["step"] for line in record.evaluations] == [0]
    (trouble,) = record.troubles
    assert trouble == (
        "metrics.jsonl: ignoring the evaluation of step 1: its eval/score is not a number"
    )


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "{", "\ud800", ""])
def test_a_damaged_file_is_a_value_error_whatever_the_damage(tmp_path, text):
    file = tmp_path / "summary.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError):
        read_json(file)
    with pytest.raises(RunError, match="cannot be read"):
        RunFolder(tmp_path).summary()


def test_a_recipe_that_was_cut_between_two_lines_is_named(tmp_path):
    """What is left is YAML, with keys that are missing."""
    (tmp_path / "recipe.yaml").write_text("# x\nseed: 0\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "eval/score": 0.5}\n')
    summary = '{"eval_metric": "score", "eval_before": 0.5, "eval_after": 0.5, "task": "x"}'
    (tmp_path / "summary.json").write_text(summary)
    assert read_finished(tmp_path) == "cannot be read (there is no 'eval.samples')"
    (tmp_path / "recipe.yaml").write_text("# x\nseed: 0\neval:\n  samples: 4\n")
    assert read_finished(tmp_path).score == 0.5
