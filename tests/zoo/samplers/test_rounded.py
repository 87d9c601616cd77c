"""`rounded`: a sampler that differs from the policy, and its log-probabilities."""

import torch

import rlzoo
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns
from rlzoo_zoo.samplers.rounded import _other


def rolled(zoo, words, *more):
    plan = make_plan(compose(["recipe=grpo", *words, "sampler=rounded", *more], zoo), zoo)
    world = build_world(plan)
    batch = collect(world, draw(world, "train", 6, "train", 0), 4, stream="train", step=0)
    add_columns(world, batch, stream="train", step=0)
    return world, batch


def gap(batch):
    mask = batch["response_mask"]
    apart = (batch["old_log_probs"] - batch["sampler_log_probs"]).abs() * mask
    return float(apart.sum() / mask.sum())


def test_without_rounding_and_noise_it_is_the_usual_sampler(zoo, words):
    world, batch = rolled(zoo, words, "sampler.bits=null")
    usual = make_plan(compose(["recipe=grpo", *words], zoo), zoo)
    other = build_world(usual)
    plain = collect(other, draw(other, "train", 6, "train", 0), 4, stream="train", step=0)
    assert torch.equal(batch["response_ids"], plain["response_ids"])
    assert gap(batch) < 1e-6
    assert world.policy.vocabulary == other.policy.vocabulary


def test_fewer_bits_and_more_noise_are_further_from_the_policy(zoo, words):
    by_bits = [gap(rolled(zoo, words, f"sampler.bits={bits}")[1]) for bits in (12, 6, 3)]
    assert by_bits[0] < by_bits[1] < by_bits[2]
    plain = "sampler.bits=null"
    by_noise = [gap(rolled(zoo, words, plain, f"sampler.noise={x}")[1]) for x in (0.001, 0.01, 0.1)]
    assert by_noise[0] < by_noise[1] < by_noise[2]


def test_the_loss_has_a_ratio_to_it_where_old_log_probs_are_the_samplers(zoo, words):
    bits = "sampler.bits=4"
    _, batch = rolled(zoo, words, bits, "rollout.old_log_probs=sampled")
    assert torch.equal(batch["old_log_probs"], batch["sampler_log_probs"])
    assert gap(rolled(zoo, words, bits, "rollout.old_log_probs=recomputed")[1]) > 1e-3
    steps = [f"sampler=rounded {bits} rollout.old_log_probs={how}" for how in ("sampled", "auto")]
    trainers = [rlzoo.open_recipe("grpo", [*words, *more.split()], zoo=zoo) for more in steps]
    apart, alike = (t.step(0.0)[1]["actor/first_ratio_gap"] for t in trainers)
    assert apart > 1e-3
    assert alike < 1e-6


def test_its_log_probs_are_those_of_the_other_weights_and_the_policy_is_left_as_it_was(zoo, words):
    world, batch = rolled(zoo, words, "sampler.bits=4", "sampler.noise=0.05")
    fresh = build_world(world.plan)
    before, after = fresh.policy.model.state_dict(), world.policy.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    torch.testing.assert_close(
        world.policy.log_probs(batch) * batch["response_mask"], batch["old_log_probs"],
        atol=1e-5, rtol=0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in {id(p): p for p in fresh.policy.model.parameters() if p.ndim == 2}.values():
            p.copy_(_other(p, 4, 0.05, generator))
    said = fresh.policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(said, batch["sampler_log_probs"], atol=1e-5, rtol=0)


def test_rows_are_rounded_by_their_own_largest_entry():
    weight = torch.tensor([[3.0, -1.4, 0.4, 0.0], [30.0, -14.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = _other(weight, 3, 0.0, torch.Generator())  # 3 steps on either side
    torch.testing.assert_close(found[0], torch.tensor([3.0, -1.0, 0.0, 0.0]))
    torch.testing.assert_close(found[1], 10 * found[0])
    assert not found[2].any()


def test_a_run_without_a_correction_is_warned(zoo, words):
    plan = make_plan(compose(["recipe=grpo", *words, "sampler=rounded"], zoo), zoo)
    assert any("sampler=rounded" in text for text in plan.warnings)
    held = make_plan(
        compose(["recipe=grpo", *words, "sampler=rounded", "correction=tis"], zoo), zoo
    )
    assert not any("sampler=rounded" in text for text in held.warnings)
