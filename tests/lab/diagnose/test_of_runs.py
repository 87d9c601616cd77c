"""`rlzoo diagnose` of models and of runs: a saved batch."""

import json
import shutil

import pytest
import torch

import rlzoo
from helpers.diagnosis import parse, subject
from rlzoo import RlzooError
from rlzoo.cli.verb import perform
from rlzoo_lab.diagnose import command as diagnose
from rlzoo_lab.kit.oracle.tree import make_tree


def test_a_models_gradient_is_autograd_through_the_model(zoo, words):
    """J of the masked model, differentiated through the network, is g* carried to parameters."""
    from rlzoo.recipe.compose import compose
    from rlzoo_lab.diagnose.model_world import make_model_world
    from rlzoo_lab.kit.oracle.tree import expected

    recipe = compose(["recipe=ppo_gae", "task=reverse_dense", *words], zoo)
    space = make_model_world(recipe, zoo, make_tree(4, 3, prompts=2))
    o = space.oracle
    assert float(o.rewards.max()) > 0
    with torch.enable_grad():
        value = expected(o.tree, space.reading.logits().softmax(-1), o.rewards)
        slope = torch.autograd.grad(value, space.weights)
    slope = torch.cat([g.flatten() for g in slope]).double()
    carried = space.gradient(o.gradient())
    assert float((slope - carried).norm() / slope.norm()) < 1e-5
    before = space.reading.logits()
    found = subject(zoo, "mc", o)
    numbers = space.measure(found)
    assert numbers["cosine"] == pytest.approx(1, abs=1e-6)
    assert numbers["gain"] == pytest.approx(1, abs=1e-3)
    assert torch.equal(before, space.reading.logits())  # the weights are back where they were


def test_the_model_is_read_as_the_rollout_reads_it(zoo, words):
    """Each state's policy is the model's softmax over the allowed tokens, one prefix at a time."""
    from rlzoo.recipe.compose import compose
    from rlzoo_lab.diagnose.model_world import make_model_world

    recipe = compose(
        ["recipe=ppo_gae", "task=reverse_dense", "rollout.temperature=0.7", *words], zoo
    )
    space = make_model_world(recipe, zoo, make_tree(4, 3, prompts=2))
    tokenizer, tree = space.policy.tokenizer, space.oracle.tree
    ids = [tokenizer.convert_tokens_to_ids(t) for t in space.tokens]
    for state in range(0, tree.states, 3):
        prompt = tokenizer(space.prompts[int(tree.prompt[state])])["input_ids"]
        prefix = [ids[t] for t in tree.prefixes[state].tolist() if t >= 0]
        with torch.no_grad():
            logits = space.policy.model(torch.tensor([prompt + prefix])).logits[0, -1]
        want = (logits[ids] / 0.7).double().log_softmax(-1)
        assert torch.allclose(space.oracle.log_pi[state], want, atol=1e-5)


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
