"""On a device other than the CPU: the CPU's numbers, no two devices mixed, and a host that waits
for it a known number of times a step. The device is pretended (`helpers.pretend_gpu`)."""

import functools
import json
from contextlib import nullcontext

import pytest
import torch

import rlzoo
from helpers.on_a_gpu import SMALL, TALK, on_both, told, trainer_of
from helpers.pretend_gpu import Pretend, pretend_gpu
from rlzoo import ops
from rlzoo.errors import ComponentError
from rlzoo.mdp.batch import Batch, take
from rlzoo.plugin.call import check, together
from rlzoo.recipe.files import list_configs

BUDGETED = {"ppo_gae": (), "vineppo": (), "turn_gae": TALK}  # the others before a landing
TALKING = ("gigpo", "turn_clip", "turn_gae")


@pytest.fixture
def small(model_dir):
    return (f"model.path={model_dir}", *SMALL)


def words_of(recipe, model_dir):
    talk = BUDGETED.get(recipe, ())
    return (*SMALL, *talk) if talk else (f"model.path={model_dir}", *SMALL)


@pytest.mark.parametrize("recipe", BUDGETED)
def test_the_device_gives_the_same_numbers_and_is_waited_for_no_more_than_is_allowed(
    recipe, zoo, model_dir
):
    want, got, counted = on_both(zoo, recipe, *words_of(recipe, model_dir))
    assert got == want
    assert counted.steps >= 2
    assert not counted.over(), counted.over()


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
    want, got, counted = on_both(zoo, recipe, *small, *more)
    assert got == want
    assert not counted.over(), counted.over()


@pytest.mark.landing
@pytest.mark.parametrize("recipe", sorted(set(list_configs("recipes")) - set(BUDGETED)))
def test_every_recipe_gives_the_same_numbers_and_keeps_the_budgets(recipe, zoo, model_dir):
    more = TALK if recipe in TALKING else (f"model.path={model_dir}",)
    if recipe == "prime":
        more += (f"columns.implicit_rewards.path={model_dir}",)
    want, got, counted = on_both(zoo, recipe, *SMALL, *more, steps=2)  # a teacher is examined once
    assert got == want
    assert not counted.over(), counted.over()


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
        assert {what for _, what, _ in gpu.syncs} == {name}
        assert gpu.waited() == 3, gpu.by_line()
        assert all("test_on_a_device.py" in at for _, _, at in gpu.syncs)


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


def test_a_wait_that_is_added_to_the_update_breaks_its_budget(zoo, small, monkeypatch):
    def looks(found):
        assert found[0].sum().item() == found[0].sum().item()
        return found

    around(monkeypatch, zoo.policy_losses["ppo_clip"], looks)
    _, _, counted = on_both(zoo, "grpo", *small)
    assert "update" in counted.over()


# ---------------------------------------------------------------- faults of plugins, found later


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_plugin_that_gives_nan_is_named_on_a_device_too(device, zoo, small, monkeypatch):
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


def test_a_fault_is_told_before_what_came_of_it():
    fault = ComponentError("the plugin")

    def spoiled():
        with together():
            check(torch.tensor(False, device="cuda"), lambda: fault)
            raise ValueError("what came of it")

    with pretend_gpu(), pytest.raises(ComponentError, match="the plugin"):
        spoiled()
    with pretend_gpu() as gpu, together() as checks:
        for _ in range(3):
            check(torch.zeros((), device="cuda").isfinite(), lambda: fault)
        before = gpu.waited()
        assert checks.read(torch.tensor(2.5, device="cuda").double()) == [2.5]
        assert gpu.waited() == before + 2  # one of them for the number that is made here
    with together(), pytest.raises(ComponentError, match="the plugin"):
        check(torch.tensor(False), lambda: fault)  # of a CPU: at once


# ---------------------------------------------------------------- what the host knows


def test_a_tensor_carries_what_the_host_knows_until_it_is_written_to():
    with pretend_gpu() as gpu:
        x = ops.put(torch.arange(6.0).view(3, 2), torch.device("cuda"))
        part = ops.pick(x, torch.tensor([2, 0]))
        assert isinstance(part, Pretend)
        assert ops.on_host(part).tolist() == [[4, 5], [0, 1]]
        picked = take({"values": x, "prompts": ["a", "b", "c"]}, torch.tensor([1]))
        assert ops.on_host(picked["values"]).tolist() == [[2, 3]]
        assert gpu.waited() == 0
        x[0] = 7.0
        assert ops.carried(x) is None
        assert ops.on_host(x)[0].tolist() == [7, 7]
        assert gpu.waited() == 1
        assert ops.on_host(x)[1].tolist() == [2, 3]
        assert gpu.waited() == 1
    y = torch.arange(3)
    assert ops.on_host(y) is y is ops.put(y, y.device)


def test_a_batch_comes_to_the_host_in_one_transfer():
    with pretend_gpu() as gpu:
        mask = ops.put(torch.ones(2, 3), torch.device("cuda"))
        batch = Batch(mask)
        batch.add("values", torch.rand(2, 3, device="cuda"))
        batch.add("sequence_scores", torch.rand(2, device="cuda"))
        batch.add("prompts", ["a", "b"])
        host = batch.on_host()
        assert gpu.waited() == 1
        assert {type(x) for n, x in host.items() if n != "prompts"} == {torch.Tensor}
        assert host["values"].tolist() == batch["values"].tolist()
        assert host["sequence_scores"].tolist() == batch["sequence_scores"].tolist()
        assert host.on_host() is host


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("ids", [[3, 3, 0, 7, 0, 3], [-5, 10**12, -5, 4, 4, 4]])
def test_statistics_of_groups_and_scans_do_not_wait(known, ids):
    x, group_ids = torch.rand(6, 4), torch.tensor(ids)
    mask = torch.tensor([[1.0, 1, 1, 0]] * 3 + [[1, 0, 1, 1]] * 3)
    end, values = torch.rand(6), torch.rand(6, 4)

    def found(x, group_ids, mask, end, values):
        yield ops.group_mean(x, group_ids)
        yield ops.group_std(x, group_ids)
        yield ops.group_max(x, group_ids)
        yield ops.group_count(group_ids)
        yield ops.group_degenerate(x[:, 0], group_ids)
        yield ops.group_mean(x, ops.group_index(group_ids, mask[:, 1].long()))
        yield ops.whiten(x, mask, group_ids)
        yield ops.whiten(x, mask)
        yield ops.td_lambda(x, values, end, mask, gamma=0.9, lam=0.8)
        yield ops.n_step_returns(x, values, end, mask, gamma=0.9, n=2)
        yield ops.next_action(x, mask, end)

    given = (x, group_ids, mask, end, values)
    want = list(found(*given))
    with pretend_gpu() as gpu:
        device = torch.device("cuda")
        there = [ops.put(y, device) if known else y.to(device) for y in given]
        gpu.clear()
        got = list(found(*there))
        assert gpu.waited() == 0, gpu.by_line()
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a.cpu(), b, rtol=1e-6, atol=1e-6)
