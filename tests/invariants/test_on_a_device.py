"""On a device other than the CPU: the CPU's numbers, and no two devices mixed. The device is
pretended (`helpers.pretend_gpu`)."""

import functools
import json
from contextlib import nullcontext

import pytest
import torch

import rlzoo
from helpers.pretend_gpu import pretend_gpu
from rlzoo.errors import ComponentError
from rlzoo.lm.build import build_world
from rlzoo.mdp.batch import Batch
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs
from rlzoo.recipe.plan import make_plan
from rlzoo.step.trainer import Trainer

UNTOLD = ("timing_s/", "perf/")
SMALL = (
    "rollout.prompts=4", "rollout.samples=4", "rollout.max_new_tokens=5", "train.minibatches=2",
    "model.autocast=none", "rollout.cache=static",
)  # fmt: skip
TALK = ("task=hi_lo", "model=turns", "rollout.max_new_tokens=24")
OFTEN = {"ppo_gae": (), "vineppo": (), "turn_gae": TALK}  # the others before a landing
TALKING = ("gigpo", "turn_clip", "turn_gae")


@pytest.fixture
def small(model_dir):
    return (f"model.path={model_dir}", *SMALL)


def trainer_of(zoo, recipe, *words):
    return Trainer(build_world(make_plan(compose([f"recipe={recipe}", *words], zoo), zoo)))


def told(metrics):
    return {name: x for name, x in metrics.items() if not name.startswith(UNTOLD)}


def on_both(zoo, recipe, *words, steps=1):
    """Metrics of `steps` steps on the CPU and on the pretend GPU."""
    cpu = trainer_of(zoo, recipe, *words, "device=cpu")
    want = [told(cpu.step()[1]) for _ in range(steps)]
    with pretend_gpu():
        device = trainer_of(zoo, recipe, *words, "device=cuda")
        return want, [told(device.step()[1]) for _ in range(steps)]


@pytest.mark.parametrize("recipe", OFTEN)
def test_the_device_gives_the_same_numbers(recipe, zoo, model_dir):
    talk = OFTEN[recipe]
    words = (*SMALL, *talk) if talk else (f"model.path={model_dir}", *SMALL)
    want, got = on_both(zoo, recipe, *words)
    assert got == want


LORA = ("model.lora.rank=2",)


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("ppo_gae", (*LORA, "critic.trunk=shared")),
        ("grpo", LORA),
        ("ppo_gae", ("train.epochs=1", "train.minibatches=1")),  # the update's pass is kept
        ("ppo_gae", ("model.autocast=bfloat16", "rollout.dtype=bfloat16")),
    ],
    ids=str,
)
def test_adapters_shared_trunks_kept_passes_and_half_precision(recipe, more, zoo, small):
    want, got = on_both(zoo, recipe, *small, *more)
    assert got == want


@pytest.mark.landing
@pytest.mark.parametrize("recipe", sorted(set(list_configs("recipes")) - set(OFTEN)))
def test_every_recipe_gives_the_same_numbers(recipe, zoo, model_dir):
    more = TALK if recipe in TALKING else (f"model.path={model_dir}",)
    if recipe == "prime":
        more += (f"columns.implicit_rewards.path={model_dir}",)
    want, got = on_both(zoo, recipe, *SMALL, *more, steps=2)  # a teacher is examined once
    assert got == want


@pytest.mark.landing
def test_a_run_is_trained_evaluated_and_exported_there(small, zoo, tmp_path):
    found = {}
    for device in ("cpu", "cuda"):
        words = [*small, "train.steps=2", "eval.samples=8", "checkpoint.every=1"]
        words += [f"device={device}", f"run.dir={tmp_path / device}"]
        with pretend_gpu() if device == "cuda" else nullcontext():
            run = rlzoo.run("ppo_gae", words, zoo=zoo)
            rlzoo.export(run.path, tmp_path / "out" / device)
            score = rlzoo.evaluate(run.path, prompts=8)
            seen = score["metrics"], score["samples"]
        lines = (run.path / "metrics.jsonl").read_text().splitlines()
        weights = (tmp_path / "out" / device / "model.safetensors").read_bytes()
        found[device] = [told(json.loads(line)) for line in lines], weights, seen
    assert found["cuda"] == found["cpu"]


# ---------------------------------------------------------------- what it finds


def test_an_index_of_the_cpu_that_is_written_through_is_found():
    with pretend_gpu():
        x = torch.zeros(4, 3, device="cuda")
        with pytest.raises(RuntimeError, match="same device.*index_put_ .*test_on_a_device.py"):
            x[torch.tensor([0, 2])] = 1.0
        with pytest.raises(RuntimeError, match="same device.*index_copy "):
            x.index_copy(0, torch.tensor([1]), torch.ones(1, 3, device="cuda"))
        x[torch.tensor([0, 2], device="cuda")] = 1.0
        assert x.sum().item() == 6


WAITS = {
    "_local_scalar_dense": lambda x: x.sum().item() + bool(x.any()) + float(x[0]),
    "tolist": lambda x: [x.tolist(), x[0].tolist(), x.long().tolist()],
    "to the host": lambda x: [x.cpu(), x.to("cpu"), x.to("cpu", torch.float64)],
    "to the device": lambda x: [
        torch.tensor([1.0], device=x.device),
        torch.ones(2).to("cuda", non_blocking=True),  # not pinned
        x.new_tensor([2.0]),
    ],
    "nonzero": lambda x: [x.nonzero(), (x > 0).nonzero(), torch.where(x > 0)],
    "index by a mask": lambda x: [x[x > 0], x[(x > 1)], x[x > 0]],
    "index by an index of the CPU": lambda x: [x[torch.tensor([0])], x[[1, 2]], x[[0]]],
    "_unique2": lambda x: [x.unique(), x.unique(return_inverse=True), torch.unique(x)],
    "copy_ to the host": lambda x: [torch.ones(4).copy_(x) for _ in range(3)],
}


@pytest.mark.parametrize("name", WAITS)
def test_each_way_to_wait_is_counted_with_its_line(name):
    with pretend_gpu() as gpu:
        WAITS[name](torch.arange(4.0, device="cuda"))
        assert {what for what, _ in gpu.syncs} == {name}
        assert gpu.waited() == 3, gpu.by_line()
        assert all("test_on_a_device.py" in at for _, at in gpu.syncs)


def test_a_run_makes_its_device_the_current_one(zoo, small):
    with pretend_gpu() as gpu:
        trainer_of(zoo, "grpo", *small, "device=cuda:0")
        assert gpu.entered[0] == torch.device("cuda", 0)


def test_what_does_not_wait_is_not_counted():
    with pretend_gpu() as gpu:
        x = torch.arange(4.0, device="cuda")
        y = torch.ones(4).pin_memory().to("cuda", non_blocking=True) + x * 2 - torch.tensor(3.0)
        y[x > 1] = 0.0
        y[1:] += x[:-1][torch.zeros(3, dtype=torch.long, device=x.device)]
        torch.where(x > 1, y, 0.0).double().sort().values.cumsum(0).clamp(max=y.max())
        assert y.shape == (4,)
        assert gpu.waited() == 0, gpu.by_line()
        for wrong in (lambda: x + torch.ones(4), lambda: torch.cat([x, torch.ones(4)])):
            with pytest.raises(RuntimeError, match="same device"):
                wrong()
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()


def around(monkeypatch, component, change):
    """From here on what `component` gives goes through `change`."""
    plain = component.function
    changed = functools.wraps(plain)(lambda *given, **options: change(plain(*given, **options)))
    monkeypatch.setitem(vars(component), "function", changed)


def test_a_tensor_made_on_the_wrong_device_is_found_in_a_step(zoo, small, monkeypatch):
    around(monkeypatch, zoo.estimators["grpo"], lambda x: x * torch.arange(x.shape[1]))
    trainer_of(zoo, "grpo", *small, "device=cpu").sample()
    with pretend_gpu():
        trainer = trainer_of(zoo, "grpo", *small, "device=cuda")
        with pytest.raises(ComponentError, match="estimator 'grpo'.*same device"):
            trainer.sample()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_plugin_that_gives_nan_is_named(device, zoo, small, monkeypatch):
    kept = zoo.estimators["grpo"], zoo.policy_losses["ppo_clip"]
    with pretend_gpu() if device == "cuda" else nullcontext():
        trainer = trainer_of(zoo, "grpo", *small, f"device={device}")
        ready = trainer.sample()
        before = {n: x.clone() for n, x in trainer.policy.model.state_dict().items()}
        around(monkeypatch, kept[1], lambda found: (found[0] * torch.nan, found[1]))
        with pytest.raises(ComponentError, match="'ppo_clip'.*: returned a loss with NaN"):
            trainer.update(ready)
        for name, x in trainer.policy.model.state_dict().items():
            assert torch.equal(x, before[name]), name
        around(monkeypatch, kept[0], lambda found: found / 0)
        with pytest.raises(ComponentError, match="'grpo'.*: returned advantages with NaN"):
            trainer.sample()


def test_a_batch_comes_to_the_host():
    with pretend_gpu():
        batch = Batch(torch.ones(2, 3, device="cuda"))
        batch.add("values", torch.rand(2, 3, device="cuda"))
        batch.add("prompts", ["a", "b"])
        host = batch.cpu()
        assert {type(x) for n, x in host.items() if n != "prompts"} == {torch.Tensor}
        assert host["values"].tolist() == batch["values"].tolist()
        assert host.cpu() is host
