"""`rlzoo diagnose` of a run: a saved batch."""

import json
import shutil

import pytest
import torch

import rlzoo
from helpers.diagnosis import parse
from rlzoo import RlzooError
from rlzoo.cli.verb import perform
from rlzoo_lab.diagnose import command as diagnose


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, model_dir):
    path = tmp_path_factory.mktemp("runs") / "one"
    rlzoo.run("ppo_gae", [
        f"model.path={model_dir}", "task=key_door", f"run.dir={path}", "run.save_batches=1",
        "rollout.prompts=4", "rollout.samples=4", "train.steps=1", "train.minibatches=1",
        "eval.samples=8", "device=cpu",
    ])  # fmt: skip
    return path


def test_a_saved_batch_through_many_estimators(run_folder, zoo, capsys):
    assert perform(diagnose, parse(run_folder, "--parameters", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    rows = [r["estimator"] for r in document["estimators"]]
    assert rows[0] == "gae"  # the run's own comes first
    undone = {r["estimator"] for r in document["not_diagnosable"]}
    assert set(rows) | undone == set(zoo.estimators)
    for key in ("correlation", "gradient_cosine", "parameter_cosine"):
        table = torch.tensor(document[key])
        assert torch.allclose(table, table.T, atol=1e-9)
        assert float(table.abs().max()) <= 1 + 1e-9
    pair = rows.index("dr_grpo"), rows.index("rloo")
    assert document["correlation"][pair[0]][pair[1]] == pytest.approx(1, abs=1e-5)
    assert document["gradient_cosine"][0][rows.index("gae_decoupled")] == pytest.approx(1, abs=1e-5)


def test_a_saved_batch_is_read_with_the_estimators_own_numbers(run_folder, zoo):
    from rlzoo_lab.data.batches import read_batch, saved_batches
    from rlzoo_lab.diagnose.saved import diagnose_run

    batch = read_batch(saved_batches(run_folder)[-1])
    document = diagnose_run(str(run_folder), ["estimator=gae,mc", "estimator.lam=1,0.5"])
    one, half, mc = document["estimators"]
    raw = zoo.estimators["gae"](batch, lam=0.5)["advantages"][batch["response_mask"].bool()]
    assert half["mean"] == pytest.approx(float(raw.mean()), abs=1e-6)
    assert half["variance"] == pytest.approx(float(raw.var(correction=0)), rel=1e-5)
    assert one["variance"] == pytest.approx(mc["variance"], rel=1e-6)
    ours = zoo.estimators["gae"](batch, lam=1.0)["advantages"][batch["response_mask"].bool()]
    true = float(torch.corrcoef(torch.stack([ours, raw]).double())[0, 1])
    assert document["correlation"][0][1] == pytest.approx(true, abs=1e-9)
    assert document["correlation"][0][2] == pytest.approx(1, abs=1e-9)


def test_a_run_without_batches_says_what_to_do(run_folder, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(run_folder, bare)
    shutil.rmtree(bare / "batches")
    with pytest.raises(RlzooError, match=r"run.save_batches=1"):
        perform(diagnose, parse(bare))
    (bare / "batches").mkdir()
    (bare / "batches" / "step-00000001.safetensors").write_bytes(b"half")
    with pytest.raises(RlzooError, match="cannot be read"):
        perform(diagnose, parse(bare))
