"""`rollout.staleness`: batches sampled by the policy of some steps ago."""

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from helpers.runs import StopAt, lines, untimed
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.delayed import FILE
from rlzoo.train.checkpoint import write_manifest
from rlzoo.train.start import open_recipe, resume
from rlzoo_lab.api.preview import estimate

# Weights that differ from step to step, though a random model earns no reward.
FAST = ["actor.lr=1e-2", "actor.entropy_coef=1.0"]


def trained(zoo, words, *more, steps=6):
    """(the trainer, each step's batch, the weights before each step)."""
    trainer = open_recipe("ppo_gae", [*words, *FAST, *more], zoo=zoo)
    batches, weights = [], []
    for _ in range(steps):
        weights.append({n: x.clone() for n, x in trainer.policy.model.state_dict().items()})
        experience = trainer.sample()
        batches.append(experience.batch)
        trainer.update(experience)
    return trainer, batches, weights


@pytest.mark.parametrize("k", [1, 3])
def test_the_sampler_is_the_policy_of_so_many_steps_ago(zoo, words, k):
    """And old_log_probs are those of the policy of now."""
    trainer, batches, weights = trained(zoo, words, f"rollout.staleness={k}")
    for step, batch in enumerate(batches):
        for at, name in ((max(0, step - k), "sampler_log_probs"), (step, "old_log_probs")):
            trainer.policy.model.load_state_dict(weights[at])
            with torch.no_grad():
                scored = trainer.policy.log_probs(batch)
            torch.testing.assert_close(batch[name], scored, atol=1e-5, rtol=1e-5)
    late = batches[-1]
    assert (late["sampler_log_probs"] - late["old_log_probs"]).abs().max() > 1e-2


def test_the_weights_of_now_are_back_after_sampling(zoo, words):
    trainer, *_ = trained(zoo, words, "rollout.staleness=2", steps=3)
    before = {n: x.clone() for n, x in trainer.policy.model.state_dict().items()}
    trainer.sample()
    after = trainer.policy.model.state_dict()
    assert all(torch.equal(x, after[n]) for n, x in before.items())


def test_none_is_what_it_was(zoo, words):
    """staleness=0 keeps the sampler's log-probs and no weights."""
    trainer, batches, _ = trained(zoo, words, "rollout.staleness=0", steps=2)
    assert trainer.delayed is None
    assert all(torch.equal(b["old_log_probs"], b["sampler_log_probs"]) for b in batches)


def test_sampled_old_log_probs_stay_the_samplers(zoo, words):
    more = ["rollout.staleness=2", "rollout.old_log_probs=sampled"]
    _, batches, _ = trained(zoo, words, *more, steps=4)
    assert all(torch.equal(b["old_log_probs"], b["sampler_log_probs"]) for b in batches)


@pytest.mark.landing
@pytest.mark.process
def test_a_run_that_was_cut_goes_on_the_same(zoo, words, tmp_path):
    words = [*words, *FAST, "train.steps=6", "rollout.staleness=3", "correction=tis"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(5))
    resume(tmp_path / "cut", zoo=zoo)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
    assert lines(tmp_path / "cut", "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")
    a, b = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("cut", "whole"))
    assert all(torch.equal(a[k], b[k]) for k in b)


def test_a_checkpoint_without_the_older_weights_is_damaged(zoo, words, tmp_path):
    """Even one whose manifest vouches for what is left."""
    words = [*words, *FAST, "train.steps=3", "rollout.staleness=2", "correction=tis"]
    words += ["checkpoint.every=1", "checkpoint.keep=2"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(3))
    newest = sorted((tmp_path / "cut" / "checkpoints").glob("step-*"))[-1]
    (newest / FILE).unlink()
    write_manifest(newest)
    resume(tmp_path / "cut", zoo=zoo)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
    assert (tmp_path / "cut" / "checkpoints" / "step-00000003" / FILE).is_file()


def test_memory_says_what_the_copies_take(zoo, words):
    def items(*more):
        found = estimate(make_plan(compose(["recipe=ppo_gae", *words, *more], zoo), zoo))
        return {item["what"]: item["bytes"] for item in found["items"]}

    without, found = items(), items("rollout.staleness=5")
    assert "delayed weights" not in without
    assert found["delayed weights"] == 5 * found["reference"]


def test_shards_are_refused_by_name(zoo, words):
    asked = ["recipe=ppo_gae", *words, "rollout.staleness=2", "parallel.strategy=shard"]
    with pytest.raises(RecipeError, match=r"rollout.staleness .*parallel.strategy=shard"):
        make_plan(compose(asked, zoo), zoo)


def test_stale_samples_without_a_correction_are_told_of(zoo, words):
    def warnings(*more):
        return make_plan(
            compose(["recipe=ppo_gae", *words, "rollout.staleness=4", *more], zoo), zoo
        )

    assert any("rollout.staleness=4" in text for text in warnings().warnings)
    assert not warnings("correction=tis").warnings
    assert not warnings("rollout.old_log_probs=sampled").warnings
