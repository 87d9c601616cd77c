"""Scores without runs: CSV files and arrays, compared as runs are."""

import json

import numpy as np
import pytest
import torch

import rlzoo
from rlzoo.errors import RlzooError
from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import compare

A, B = [0.51, 0.55, 0.49, 0.53], [0.61, 0.64, 0.60, 0.66]
DIFFERENCE = sum(B) / 4 - sum(A) / 4


def table(path, rows, header="name,seed,score"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def long(path, **more):
    rows = [(name, seed, x) for name, xs in {"a": A, "b": B}.items() for seed, x in enumerate(xs)]
    return table(path, rows, **more)


def test_a_file_of_scores_gives_the_verdict_and_paired_intervals(tmp_path):
    c = compare([long(tmp_path / "gsm8k.csv")])
    [pair] = c.pairs
    assert pair.contrast.mean == pytest.approx(-DIFFERENCE)
    assert not pair.unpaired
    assert c.title == "gsm8k: score"
    assert [row.scores for row in c.rows] == [A, B]
    interval = stats.t_interval([b - a for a, b in zip(A, B, strict=True)])
    assert (-pair.contrast.interval.high, -pair.contrast.interval.low) == pytest.approx(interval)


def test_the_command_writes_a_page_with_plots(tmp_path):
    page = tmp_path / "s.html"
    document = rlzoo.compare(long(tmp_path / "s.csv"), html=page, reference="a")
    assert "beats a" in " ".join(document["verdict"])
    assert "beats a" in page.read_text()
    assert "<svg" in page.read_text()
    assert "learning curves and cost" not in str(document), "final scores have no curve"
    assert json.dumps(document)


def test_arrays_and_files_give_the_same(tmp_path):
    file = rlzoo.compare(long(tmp_path / "scores.csv"))
    assert rlzoo.compare_scores({"a": A, "b": np.array(B)}) == file


class Table:
    """As a data frame: it yields its columns' names."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(range(len(self.rows[0])))

    def to_numpy(self):
        return np.array(self.rows)


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor,
        lambda rows: torch.tensor(rows, requires_grad=True),
        lambda rows: torch.tensor(rows, dtype=torch.float64).numpy(),
        lambda rows: [torch.tensor(x) for x in rows],
        lambda rows: [np.array(x) for x in rows],
        lambda rows: list(np.array(rows)),
        lambda rows: tuple(map(tuple, rows)) if isinstance(rows[0], list) else tuple(rows),
        lambda rows: iter(rows),
        lambda rows: Table(rows) if isinstance(rows[0], list) else rows,
    ],
)
@pytest.mark.parametrize("curves", [False, True])
def test_an_array_of_any_library_is_a_list(given, curves):
    one, two = ([[x - 0.5, x] for x in side] if curves else side for side in (A, B))
    expected = rlzoo.compare_scores({"a": one, "b": two})
    found = rlzoo.compare_scores({"a": given(one), "b": given(two)})
    assert found["pairs"][0]["difference"] == pytest.approx(expected["pairs"][0]["difference"])
    assert len(found["rows"]) == 2


def test_columns_have_any_case_and_metric_names_the_scores(tmp_path):
    place = long(tmp_path / "s.csv", header="Name,Seed,eval/pass@1")
    assert rlzoo.compare(place, metric="eval/pass@1")["rows"][1]["mean"] == pytest.approx(0.6275)
    with pytest.raises(RlzooError, match="'score'"):
        rlzoo.compare(place)


def test_a_chart_that_wandb_exports(tmp_path):
    """Columns of runs, `NAME-seed-N - metric`, rows of steps; empty cells where a run ended."""
    header = "Step,a-seed-0 - acc,a-seed-0 - acc__MIN,a_s1 - acc,b-seed-0 - acc,b-s1 - acc"
    rows = [(1, 0.1, 0, 0.2, 0.3, 0.4), (2, 0.5, 0, "", 0.7, 0.8), (3, 0.6, 0, 0.7, "", 0.9)]
    c = compare([table(tmp_path / "chart.csv", rows, header)])
    assert {row.label: row.scores for row in c.rows} == {"a": [0.6, 0.7], "b": [0.7, 0.9]}
    assert [point[2] for point in c.rows[0].runs[0].learning_curve] == [0.1, 0.5, 0.6]
    assert c.has_curves


def test_curves_count_by_their_last_score():
    curves = {"a": [[0.0, 0.5], [0.1, 0.6]], "b": [[0.0, 0.9], [0.1, 0.95]]}
    document = rlzoo.compare_scores(curves, steps=[10, 20], threshold=0.5)
    assert [row["mean"] for row in document["rows"]] == pytest.approx([0.55, 0.925])
    assert document["rows"][0]["threshold"]["reached"] == 2
    assert document["rows"][0]["threshold"]["last_step"] == 20


def test_scores_without_shared_seeds_use_welchs_test():
    document = rlzoo.compare_scores({"a": A, "b": B[:3]}, paired=False)
    [pair] = document["pairs"]
    assert pair["unpaired"]
    assert document["rows"][1]["seeds"] == [4, 5, 6]
    assert "Welch" in document["method"]


def test_paired_scores_of_unequal_numbers_of_seeds_are_refused():
    with pytest.raises(RlzooError, match="a has 4, b has 3"):
        rlzoo.compare_scores({"a": A, "b": B[:3]})


@pytest.mark.parametrize(
    "scores",
    [{}, {"a": []}, {"a": [0.1, float("nan")]}, {"a": ["x"]}, {"a": [[1, 2], [1]]}, {"a": [[]]},
     [0.1], {"a": 0.5}, {"a": "12"}, {"a": {0: 0.5, 1: 0.6}}, {"a": {0.5, 0.6}},
     {"a": torch.tensor(0.5)}, {"a": torch.zeros(2, 2, 2)}, {"a": torch.tensor([0.5, torch.nan])},
     {"a": [[0.5] * 9999 + [float("inf")]]}],
)  # fmt: skip
def test_what_are_not_scores_is_refused(scores):
    with pytest.raises(RlzooError, match="compare_scores") as caught:
        rlzoo.compare_scores(scores)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("header", "row", "where"),
    [
        ("name,seed,score", ("a", "x", 1), "line 2"),
        ("name,seed,score", ("a", 0, "nan"), "line 2"),
        ("name,seed,score", ("", 0, 1), "line 2"),
        ("name,seed,score", ("a", 0), "line 2"),
        ("name,seed,score,step", ("a", 0, 1, -1), "line 2"),
        ("name,seed", ("a", 0), "line 1"),
        ("Step,loss", (1, 0), "line 1"),
        ("Step,run - acc", (1, 0), "line 1"),
        ("when,a-seed-0 - acc", (1, 0), "line 1"),
    ],
)
def test_a_damaged_file_names_its_line(tmp_path, header, row, where):
    place = table(tmp_path / "s.csv", [row], header)
    with pytest.raises(RlzooError, match=where) as found:
        compare([place])
    assert str(place) in str(found.value)


@pytest.mark.parametrize(("metric", "refused"), [("val_loss", 1), ("wer", 1), ("flawless", 0)])
def test_a_loss_is_no_score(tmp_path, metric, refused):
    place = long(tmp_path / "s.csv", header=f"name,seed,{metric}")
    chart = table(tmp_path / "c.csv", [(1, 0.1, 0.2)], f"Step,a-s0 - {metric},b-s0 - {metric}")
    for given, named in ((place, metric), (chart, None)):
        if refused:
            with pytest.raises(RlzooError, match=metric):
                rlzoo.compare(given, metric=named)
    if not refused:
        assert len(rlzoo.compare(place, metric=metric)["rows"]) == 2


def test_a_score_twice_and_a_run_next_to_scores_are_refused(tmp_path):
    with pytest.raises(RlzooError, match="line 3"):
        compare([table(tmp_path / "s.csv", [("a", 0, 1), ("a", 0, 2)])])
    with pytest.raises(RlzooError, match="not both"):
        compare([long(tmp_path / "s.csv"), tmp_path])


CHART = ["{0},a-seed-0 - acc,a-seed-1 - acc,b_s0 - acc,b_s1 - acc", "50,.1,.2,.3,.4",
         "100,.2,.3,.5,.6"]  # fmt: skip


@pytest.mark.parametrize("axis", ["Step", "train/global_step", "trainer/global_step", "_step"])
def test_the_axis_of_a_chart_is_any_name_of_a_step(tmp_path, axis):
    (tmp_path / "c.csv").write_text("\n".join(CHART).format(axis) + "\n")
    rows = compare([tmp_path / "c.csv"]).rows
    assert {row.label: row.scores for row in rows} == {"a": [0.2, 0.3], "b": [0.5, 0.6]}


@pytest.mark.parametrize("name", ["grpo-epochs{}", "tokens25{}", "grpo-steps-{}", "gpus_{}"])
def test_a_number_that_is_no_seed_is_none(tmp_path, name):
    runs = [name.format(i) for i in (1, 2)]
    header = ",".join(["Step", *(f"{run} - acc" for run in runs)])
    with pytest.raises(RlzooError, match="seed"):
        compare([table(tmp_path / "c.csv", [(1, 0.5, 0.6)], header=header)])


@pytest.mark.parametrize("header", ["method,seed,score", "Model,seed,score", "algo,seed,score"])
def test_a_column_of_names_has_several_names(tmp_path, header):
    assert [r.label for r in compare([long(tmp_path / "s.csv", header=header)]).rows] == ["a", "b"]


def test_tabs_and_decimal_commas(tmp_path):
    place = long(tmp_path / "s.csv")
    text = place.read_text().replace(",", ";").replace(".", ",")
    for name, split in (("s.csv", ";"), ("t.tsv", "\t")):
        (tmp_path / name).write_text(text.replace(";", split))
        assert [row.scores for row in compare([tmp_path / name]).rows] == [A, B]


@pytest.mark.parametrize("score", ["1e308", "-1e200", "9" * 400, "inf"])
def test_a_score_that_no_mean_holds_is_refused(tmp_path, score):
    with pytest.raises(RlzooError, match="line 2"):
        compare([table(tmp_path / "s.csv", [("a", 0, score)])])
    with pytest.raises(RlzooError, match="a"):
        rlzoo.compare_scores({"a": [float(score)] * 2, "b": [0.5, 0.6]})
