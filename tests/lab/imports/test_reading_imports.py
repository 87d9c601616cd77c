"""The verbs that read a run read an imported one, and name what it lacks."""

import json

import pytest

import rlzoo
from helpers.made_up_sources import SOURCES, lines
from rlzoo.errors import RlzooError
from rlzoo_lab.data.record import TRAINING


def grpo(folder, values, **settings):
    """An imported run of TRL's: a reward for each step."""
    history = [{"step": n, "reward": x, "kl": 0.0, **settings} for n, x in enumerate(values, 1)]
    path = folder.with_suffix(".json")
    path.write_text(json.dumps({"log_history": history}))
    seed = int(folder.name.rpartition("-")[2])
    rlzoo.verb("import", path, out=folder, seed=seed, row=folder.name.rpartition("-")[0])
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        grpo(place / f"low-{seed}", [0.1 + 0.01 * seed] * 10 + [0.2 + 0.01 * seed] * 10)
        grpo(place / f"high-{seed}", [0.1 + 0.01 * seed] * 10 + [0.6 + 0.02 * seed] * 10)
    return place


def test_runs_without_an_evaluation_are_compared_by_the_training_reward(runs):
    document = rlzoo.compare(runs)
    assert TRAINING in str(document)
    assert {row["row"]: round(row["mean"], 3) for row in document["rows"]} == {
        "low": 0.21, "high": 0.62}  # fmt: skip
    assert "beats" in " ".join(document["verdict"])
    with pytest.raises(RlzooError, match="--metric"):
        rlzoo.compare(runs, metric="accuracy")


def test_a_run_without_a_seed_is_left_out_by_name(runs, tmp_path):
    lines(tmp_path / "a.jsonl", [{"step": 1, "critic/score/mean": 0.5}])
    rlzoo.verb("import", tmp_path / "a.jsonl", out=tmp_path / "noseed")
    document = rlzoo.compare(runs, tmp_path / "noseed")
    assert any("--seed" in note and "noseed" in note for note in document["notes"])


def test_the_doctor_names_a_fault_and_what_was_not_recorded(tmp_path):
    stuck = [{"step": n, "reward": 0.5, "reward_std": 0.0, "frac_reward_zero_std": 1.0,
              "rewards/a/mean": 0.5, "rewards/a/std": 0.0} for n in range(1, 21)]  # fmt: skip
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": stuck}))
    rlzoo.verb("import", tmp_path / "trainer_state.json", out=tmp_path / "run")
    document = rlzoo.doctor(tmp_path / "run")
    assert "no_signal_in_groups" in {finding["rule"] for finding in document["findings"]}
    assert "imported from trl" in str(document)
    assert "not recorded by it" in str(document)


def test_the_report_shows_curves_and_samples(tmp_path):
    pytest.importorskip("pyarrow")
    SOURCES["trl"](tmp_path / "source")
    rlzoo.verb("import", tmp_path / "source", out=tmp_path / "run")
    rlzoo.report(tmp_path / "run", out=tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "2+3=" in page
    assert "<svg" in page
    assert "imported from trl" in page


@pytest.mark.parametrize("verb", ["trace", "diagnose", "evaluate", "export"])
def test_what_needs_the_model_says_that_the_run_was_imported(runs, tmp_path, verb):
    words = [tmp_path / "out"] if verb == "export" else []
    with pytest.raises(RlzooError) as found:
        getattr(rlzoo, verb)(runs / "low-0", *words)
    assert found.value.kind == "imported"
