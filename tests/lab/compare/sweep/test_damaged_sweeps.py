"""A sweep with a damaged file costs that file's run, and one that was finished by hand is whole."""

import json

import pytest

from helpers.made_up_runs import made_up_sweep
from rlzoo.cli import main
from rlzoo_lab.data.comparable import gather

ROWS = {f"lam={lam:g}": (mean, {"estimator.lam": lam}) for lam, mean in ((0.5, 0.6), (0.95, 0.7))}


@pytest.fixture
def sweep(tmp_path):
    return made_up_sweep(tmp_path / "s", ROWS, 3)


def test_a_run_that_failed_and_was_finished_is_finished(sweep):
    """`rlzoo resume` went on with it; failed.json stays behind."""
    (sweep / "lam=0.5--seed0" / "failed.json").write_text(json.dumps({"reason": "out of luck"}))
    found = gather([sweep])
    assert not found.failed
    assert len(found.records) == 6


@pytest.mark.parametrize("text", ["[]", "{", "1", '{"reason": 3}'])
def test_a_damaged_failure_is_none(sweep, text):
    (sweep / "lam=0.5--seed0" / "failed.json").write_text(text)
    assert len(gather([sweep]).records) == 6


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "recipe.yaml"])
@pytest.mark.parametrize("text", [None, "[1]\n[2]\n", "\udcff"])
def test_a_damaged_run_is_left_out_and_named(sweep, name, text, capsys):
    file = sweep / "lam=0.5--seed0" / name
    file.unlink()
    if text is not None:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["compare", str(sweep)]) == 0
    said = capsys.readouterr()
    assert "lam=0.5--seed0" in (said.out + said.err).replace("\n", "")


ODD = {
    "label": '{"keys": [], "rows": [{"label": 7, "values": {}, "words": [], "runs": []}]}',
    "runs": '{"keys": [], "rows": [{"label": "a", "values": {}, "words": [], "runs": [[]]}]}',
    "values": '{"keys": [], "rows": [{"label": "a", "values": [], "words": [], "runs": []}]}',
    "words": '{"keys": [], "rows": [{"label": "a", "values": {}, "words": null, "runs": []}]}',
    "keys": '{"keys": 3, "rows": [{"label": "a", "values": {}, "words": [], "runs": []}]}',
    "key": '{"keys": [3], "rows": []}',
}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": [], "rows": [1]}', "{", *ODD.values()])
def test_a_damaged_index_is_one_line(sweep, text, capsys):
    (sweep / "sweep.json").write_text(text)
    assert main(["compare", str(sweep)]) == 2
    said = capsys.readouterr().err
    assert "sweep.json cannot be read" in said
    assert said.count("\n") == 1
