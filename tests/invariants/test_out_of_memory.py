"""Less memory, the same step: gradient checkpointing, and passes halved once memory ran out."""

import pytest
import torch

import rlzoo
from helpers.architectures import LORA, NEAR, SMALL
from helpers.grids import grid
from helpers.runs import StopAt
from helpers.worlds import rolled, state_of, step, watch_passes, with_gradient
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import take
from rlzoo.step.trainer import Trainer
from rlzoo.step.update import gradients

SHARED = ["critic.trunk=shared"]


def count_calls(module):
    calls = []
    module.register_forward_pre_hook(lambda *given: calls.append(torch.is_grad_enabled()))
    return calls


def first_mlp(trunk):
    return next(m for n, m in trunk.named_modules() if n.endswith("0.mlp"))


@pytest.mark.parametrize(
    ("name", "extra"),
    grid(["gpt2", "llama", "gemma2"], [[], SHARED, LORA],
         always=lambda name, extra: name == "gpt2" or extra == SHARED),
)  # fmt: skip
def test_gradient_checkpointing_gives_the_same_gradient_and_is_used(make, name, extra):
    results = []
    for more in ([], ["model.gradient_checkpointing=true"]):
        world = make(name, *extra, *more)
        assert not world.policy.model.training
        batch = rolled(world)
        calls = {"actor": count_calls(first_mlp(world.policy.model))}
        if world.engine.critic.trunk is not None:
            calls["critic"] = count_calls(first_mlp(world.engine.critic.trunk))
        sums = gradients(world.engine, world.plan, take(batch, torch.arange(batch.rows)), 0.1)
        found = {
            f"{n}.{k}": x.grad
            for n, network in world.engine.networks.items()
            for k, x in network.named_parameters()
            if x.grad is not None
        }
        results.append((found, sums, {n: sum(c) for n, c in calls.items()}))
        assert not world.policy.model.training
    (plain, sums, once), (again, same_sums, twice) = results
    assert twice == {n: 2 * c for n, c in once.items()}
    assert again.keys() == plain.keys()
    for key, x in plain.items():
        torch.testing.assert_close(again[key], x, atol=1e-6, rtol=1e-5, msg=key)
    assert same_sums == pytest.approx(sums, abs=1e-6)


def test_half_the_room_is_half_the_rows_in_a_pass(make):
    for words in (["train.microbatch=4"], []):
        world = make("llama", *words, "rollout.prompts=16")
        batch = rolled(world)
        before = world.engine.passes.parts(world.policy, batch, grad=True)
        world.engine.passes.scale = 0.5
        after = world.engine.passes.parts(world.policy, batch, grad=True)
        if words:
            assert len(after) > 1.5 * len(before)
        assert sorted(torch.cat(after).tolist()) == list(range(batch.rows))


def out_of_memory(monkeypatch, place, name, *, times):
    """The next `times` calls of `place.name` with a gradient find no memory."""
    plain, left = getattr(place, name), [times]

    def call(*args, **kwargs):
        if left[0] and torch.is_grad_enabled():
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(*args, **kwargs)

    monkeypatch.setattr(place, name, call)
    return left


MEMORY = (
    ([], (Policy, "log_prob_stats")),
    ([], (Critic, "predict")),
    (["critic.trunk=shared"], (Policy, "log_prob_stats")),
    (["train.minibatches=1"], (Policy, "log_prob_stats")),  # there a pass is kept for the columns
    (["train.microbatch=4"], (Policy, "log_prob_stats")),
)


@pytest.mark.parametrize(("extra", "place"), MEMORY)
def test_out_of_memory_halves_the_passes_once_and_changes_nothing(make, monkeypatch, extra, place):
    want = make("llama", *extra)
    step(want)
    world = make("llama", *extra)
    left = out_of_memory(monkeypatch, *place, times=1)
    _, metrics = step(world)
    assert left == [0]
    assert len(world.engine.notes) == 1
    assert "out of memory" in world.engine.notes[0]
    assert world.engine.passes.scale == 0.5
    assert metrics["train/skipped"] == 0
    now = state_of(world)
    for key, x in state_of(want).items():
        torch.testing.assert_close(now[key], x, atol=1e-6, rtol=0, msg=key)
    out_of_memory(monkeypatch, *place, times=1)
    with pytest.raises(torch.OutOfMemoryError):
        step(world, 1)


def test_a_pass_that_was_kept_goes_when_memory_runs_out(make, monkeypatch):
    """It is what fills the memory; the update makes smaller ones."""
    from rlzoo.step import update as module

    world = make("llama", "train.minibatches=1")
    seen = watch_passes(monkeypatch)
    plain, left = module._value_loss, [1]
    trainer = Trainer(world)
    experience = trainer.sample()

    def backward(*given, **named):
        if left[0]:
            left[0] -= 1
            seen.clear()
            assert experience.kept
            # As torch says it on a CPU.
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        return plain(*given, **named)

    monkeypatch.setattr(module, "_value_loss", backward)
    trainer.update(experience)
    assert not experience.kept
    assert with_gradient(seen) > 0
    monkeypatch.undo()
    want = make("llama", "train.minibatches=1")
    step(want)
    now = state_of(world)
    for key, x in state_of(want).items():
        torch.testing.assert_close(now[key], x, atol=1e-6, rtol=0, msg=key)


def test_the_failed_pass_is_gone_before_the_next_is_tried(make):
    """Its activations hang on the traceback, which must not be alive then."""
    import weakref

    world = make("llama")
    alive = []

    def attempt():
        activations = torch.ones(3)
        alive.append(weakref.ref(activations))
        if len(alive) == 1:
            raise torch.OutOfMemoryError
        return [there() is not None for there in alive]

    assert world.engine.passes.retry(attempt) == [False, True]


def test_memory_that_runs_out_without_a_gradient_halves_passes_too(make, monkeypatch):
    world = make("llama")
    plain, left = Policy.log_prob_stats, [1]

    def call(self, columns, **options):
        if left[0] and self is world.engine.reference:
            left[0] -= 1
            raise torch.OutOfMemoryError
        return plain(self, columns, **options)

    monkeypatch.setattr(Policy, "log_prob_stats", call)
    batch = rolled(world)
    want = make("llama")
    assert world.engine.passes.scale == 0.5
    torch.testing.assert_close(batch["ref_log_probs"], rolled(want)["ref_log_probs"], **NEAR)


def test_a_run_that_ran_out_of_memory_says_so(zoo, folders, tmp_path, monkeypatch):
    display = StopAt(None)
    out_of_memory(monkeypatch, Policy, "log_prob_stats", times=2)  # first while the model is tried
    words = [f"model.path={folders['llama']}", *SMALL, "train.steps=2", f"run.dir={tmp_path}/run"]
    rlzoo.run("grpo", words, zoo=zoo, display=display)
    assert [text for text in display.notes if "out of memory" in text] == [
        "out of memory; continuing with half the rows per pass (same gradient)"
    ]


def test_an_error_that_is_not_of_memory_goes_through(make, monkeypatch):
    world = make("llama")

    def call(*given, **options):
        raise RuntimeError("no")

    monkeypatch.setattr(Policy, "log_prob_stats", call)
    with pytest.raises(RuntimeError, match="^no$"):
        step(world)
    assert world.engine.passes.scale == 1
