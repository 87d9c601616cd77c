"""One update: its mini-batches, and what moves."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, state_of, weights_after, world_of
from rlzoo.accel.engine import Engine, Kept
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.trainer import Trainer


def test_mini_batches_keep_groups_whole_for_a_loss_that_looks_at_them(zoo, words):
    from rlzoo.mdp.noise import generator
    from rlzoo.step.update import _minibatches

    for loss, whole in (("tpo", True), ("ppo_clip", False)):
        world = world_of(zoo, [*words, f"policy_loss={loss}"], "grpo")
        batch = rolled(world)
        parts = _minibatches(world.plan, batch, 2, generator(0, "x"))
        assert sorted(torch.cat(parts).tolist()) == list(range(batch.rows))
        homes = [set(batch["group_ids"][rows].tolist()) for rows in parts]
        assert (sum(map(len, homes)) == 4) == whole


def test_an_update_moves_actor_and_critic(zoo, words):
    words = [*words, *LETTERS]
    before = state_of(world_of(zoo, words))
    after, metrics = weights_after(zoo, words, "ppo_gae")
    assert any(not torch.equal(before[k], after[k]) for k in before)
    assert after["critic.head.weight"].abs().sum() > 0
    assert metrics["actor/grad_norm"] > 0


def test_a_ratio_is_the_policy_over_the_old_one():
    from rlzoo.step.update import _note_policy

    old = torch.tensor([[-1.0, -2.0]])
    columns = {"old_log_probs": old, "log_probs": old + math.log(2), "entropy": 0 * old}
    sums = defaultdict(list)
    _note_policy(sums, columns, torch.tensor([[0.25, 0.75]]), torch.tensor(0.0), {})
    found = {name: float(sum(terms)) for name, terms in sums.items()}
    assert found["actor/ratio_mean"] == pytest.approx(2)
    assert found["actor/ppo_kl"] == pytest.approx(-math.log(2))


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_without_a_signal_are_scored_again_only_after_a_first_update(zoo, words, parts):
    """Before it, the sampler's log-probs and entropy are the policy's."""

    def metrics(*without):
        world = world_of(zoo, [*words, "kl.place=none", f"train.minibatches={parts}"], "grpo")
        trainer = Trainer(world)
        experience = trainer.sample()
        batch, engine = experience.batch, trainer.engine
        assert ("old_entropy" in batch) == (parts == 1)
        silent = batch["group_ids"] < 2
        batch["advantages"].copy_(torch.where(silent[:, None], 0, batch["response_mask"]))
        for name in without:
            batch.data.pop(name, None)
        asked = []
        scores = type(engine).scores
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                type(engine), "scores", lambda *a, **k: asked.append(1) or scores(*a, **k)
            )
            found = trainer.update(experience)
        return {n: x for n, x in found.items() if n.startswith("actor/")}, len(asked)

    known, times = metrics()
    by_pass, more = metrics("old_entropy")
    assert (times, more) == ((0, 1) if parts == 1 else (2, 2))
    assert known == pytest.approx(by_pass, rel=1e-5, abs=2e-6)
    assert known["actor/grad_norm"] > 0 < known["actor/entropy"]


@pytest.mark.parametrize(
    ("other", "there"),
    [([], True), (["rollout.staleness=1", "rollout.old_log_probs=sampled"], False),
     (["model.autocast=bfloat16", "rollout.old_log_probs=sampled"], False),
     (["train.minibatches=2"], False)],
)  # fmt: skip
def test_the_samplers_entropy_serves_only_where_it_is_the_policys(other, there, zoo, words):
    """Older weights, or half precision, have another one."""
    one = ["kl.place=none", "train.minibatches=1", *other]
    assert ("old_entropy" in rolled(world_of(zoo, [*words, *one], "grpo"))) == there


@pytest.mark.parametrize(
    ("recipe", "more"),
    [("grpo", ["kl.place=none"]), ("grpo", ["kl.place=loss", "kl.coef=0.1"]),
     ("dr_grpo", ["policy_loss=vespo", "kl.place=none"]),
     ("grpo", ["policy_loss=tpo", "kl.place=none"]),
     ("ppo_gae", ["critic.trunk=shared", "kl.place=loss"])],
)  # fmt: skip
@pytest.mark.parametrize("microbatches", [False, True])
def test_a_single_updates_pass_gives_the_old_log_probs(
    recipe, more, microbatches, zoo, words, monkeypatch
):
    """What no component reads before the losses needs no pass of its own, and gives the same."""
    words = [*words, *LETTERS, *more, "model.dtype=float64", "train.epochs=1",
             "train.minibatches=1", "rollout.old_log_probs=recomputed"]  # fmt: skip
    monkeypatch.setattr(Engine, "ahead", lambda *a, **k: Kept())  # no memory to keep a pass
    scores, asked = Engine.scores, []
    monkeypatch.setattr(
        Engine, "scores",
        lambda self, columns, want, *a: asked.append((len(columns["response_mask"]), set(want)))
        or scores(self, columns, want, *a),
    )  # fmt: skip

    def step(spared):
        plan = make_plan(compose([f"recipe={recipe}", *words], zoo), zoo)
        assert plan.old_in_loss
        trainer = Trainer(build_world(replace(plan, old_in_loss=spared)))
        if microbatches:
            trainer.engine.passes.scale = 1 / 4
        asked.clear()
        batch, metrics = trainer.step()
        passes = sum("log_probs" in want for rows, want in asked if rows == batch.rows)
        return batch, metrics, state_of(trainer.world), passes

    batch, metrics, weights, passes = step(True)
    again, others, expected, before = step(False)
    assert passes == before - 1
    assert metrics["actor/grad_norm"] > 0
    assert metrics["actor/ratio_mean"] == 1
    torch.testing.assert_close(batch["old_log_probs"], again["old_log_probs"], rtol=0, atol=1e-12)
    for name, x in weights.items():
        torch.testing.assert_close(x, expected[name], rtol=0, atol=1e-10)
    timed = ("timing_s/", "perf/")
    for name, value in others.items():
        if not name.startswith((*timed, "rollout/")):
            assert metrics[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize(
    "word", ["kl.place=reward", "kl.reference=rollout", "correction=tis", "train.epochs=2",
             "estimator=otb"],
)  # fmt: skip
def test_old_log_probs_that_something_reads_before_the_losses_have_their_pass(word, zoo, words):
    one = ["kl.place=loss", "train.epochs=1", "train.minibatches=1"]
    plan = make_plan(compose(["recipe=grpo", *words, *one, word], zoo), zoo)
    assert not plan.old_in_loss
    assert make_plan(compose(["recipe=grpo", *words, *one], zoo), zoo).old_in_loss
