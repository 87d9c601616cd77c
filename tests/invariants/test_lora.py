"""LoRA: the base stays, adapters alone train, and what is saved loads elsewhere."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from helpers.architectures import EACH, LORA, NEAR, SMALL, TOKENIZER, columns_of, ragged
from helpers.runs import StopAt
from helpers.worlds import rolled, step
from rlzoo.lm.loading import load_causal_lm


def randomise_adapters(model, seed=0):
    """B starts at zero, so that an adapter does nothing yet."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator)


@EACH
def test_lora_with_the_adapter_off_is_the_base_exactly(make, name):
    columns = columns_of(*ragged(8)[:2])
    plain = make(name).policy
    policy = make(name, *LORA).policy
    randomise_adapters(policy.model)
    reference = policy.frozen_copy()
    with torch.no_grad():
        want = plain.log_probs(columns)
        on = policy.log_probs(columns)
        assert torch.equal(reference.log_probs(columns), want)
        assert torch.equal(policy.log_probs(columns), on)  # and it is on again
    assert not torch.allclose(on, want)


def test_adapters_start_as_the_seed_says_whoever_else_draws(make, monkeypatch):
    """Another thread may draw by the process's generator between any two lines."""

    def starts(seed, state):
        monkeypatch.setattr(
            torch, "manual_seed", lambda _: torch.default_generator.manual_seed(state)
        )
        model = make("llama", *LORA, f"seed={seed}").policy.model
        monkeypatch.undo()
        return [w.detach() for n, w in model.named_parameters() if "lora_A" in n]

    once, again, other = starts(3, 0), starts(3, 1), starts(4, 0)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("trunk", ["own", "shared"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_lora_trains_adapters_and_nothing_else(make, name, trunk):
    plain = make(name, f"critic.trunk={trunk}")
    world = make(name, *LORA, f"critic.trunk={trunk}", "actor.lr=1e-2")
    assert world.engine.reference.model is world.policy.model  # no second network
    want = rolled(plain)
    batch, metrics = step(world)
    assert torch.equal(batch["response_ids"], want["response_ids"])
    assert torch.equal(batch["ref_log_probs"], want["ref_log_probs"])
    assert all(math.isfinite(value) for value in metrics.values())
    trained = {n for n, x in world.policy.model.named_parameters() if x.requires_grad}
    assert trained
    assert all("lora_" in n for n in trained)
    now = world.policy.model.state_dict()
    for key, x in plain.policy.model.state_dict().items():
        left, _, right = key.rpartition(".")
        assert torch.equal(now[key if key in now else f"{left}.base_layer.{right}"], x), key
    with torch.no_grad():  # the reference is where it was, the policy is not
        assert torch.equal(world.engine.reference.log_probs(batch), plain.policy.log_probs(batch))
        assert not torch.allclose(world.policy.log_probs(batch), plain.policy.log_probs(batch))


@pytest.mark.parametrize("trunk", ["own", pytest.param("shared", marks=pytest.mark.landing)])
@pytest.mark.process
def test_a_lora_checkpoint_holds_the_adapters_and_a_resumed_run_is_the_same(
    zoo, folders, tmp_path, trunk
):
    words = [f"model.path={folders['llama']}", *SMALL, *LORA, f"critic.trunk={trunk}",
             "train.steps=3", "checkpoint.every=1"]  # fmt: skip
    whole = rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path}/whole"], zoo=zoo)
    cut = [*words, f"run.dir={tmp_path}/cut"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", cut, zoo=zoo, display=StopAt(2))
    again = rlzoo.resume(tmp_path / "cut", zoo=zoo)
    assert [line["reward/mean"] for line in again.metrics if "reward/mean" in line] == [
        line["reward/mean"] for line in whole.metrics if "reward/mean" in line
    ]
    kept = {}
    for run in (whole, again):
        newest = sorted((run.path / "checkpoints").glob("step-*"))[-1]
        kept[run.path.name] = {
            n: load_file(newest / f"{n}.safetensors") for n in ("actor", "critic")
        }
    assert all("lora_" in key for key in kept["whole"]["actor"])
    own = {key for key in kept["whole"]["critic"] if not key.startswith("head.")}
    assert all("lora_" in key for key in own)
    assert bool(own) == (trunk == "own")
    for network, tensors in kept["whole"].items():
        for key, x in tensors.items():
            assert torch.equal(x, kept["cut"][network][key]), key


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_a_lora_run_leaves_an_adapter_that_peft_transformers_and_rlzoo_load(
    zoo, folders, tmp_path, name, bare, make
):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = [f"model.path={folders[name]}", *SMALL, *LORA, "train.steps=1", "actor.lr=1e-2"]
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/run"], zoo=zoo)
    folder = run.path / "model"
    files = {path.name for path in folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    assert "model.safetensors" not in files
    said = json.loads((folder / "adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == str(folders[name].resolve())
    assert (said["r"], said["lora_alpha"]) == (2, 8)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(TOKENIZER)

    ids = torch.randint(3, len(TOKENIZER), (2, 9), generator=torch.manual_seed(0))
    base = AutoModelForCausalLM.from_pretrained(folders[name])
    with torch.no_grad():
        by_peft = PeftModel.from_pretrained(base, folder).eval()(ids).logits
        by_transformers = AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits
        by_rlzoo = load_causal_lm(folder)(ids).logits
        assert not torch.allclose(by_peft, bare(name)(ids).logits, atol=1e-3)
        torch.testing.assert_close(by_transformers, by_peft)
        torch.testing.assert_close(by_rlzoo, by_peft, **NEAR)
        # It is a start, too: for all weights, or for an adapter that lies on top of it.
        assert all(x.requires_grad for x in load_causal_lm(folder).parameters())
        world = make(folder, *LORA)
        torch.testing.assert_close(world.policy.model(ids).logits, by_peft, **NEAR)
        randomise_adapters(world.policy.model)
        world.policy.model.save_pretrained(tmp_path / "second")
        world.policy.tokenizer.save_pretrained(tmp_path / "second")
        both = load_causal_lm(tmp_path / "second")(ids).logits
        torch.testing.assert_close(both, world.policy.model(ids).logits, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(both, by_peft, atol=1e-3)


def test_a_critic_of_its_own_has_adapters_of_its_own(make, folders):
    for words in ([], [f"critic.init={folders['gemma']}"]):
        world = make("llama", *LORA, *words)
        trained = {n for n, x in world.engine.critic.named_parameters() if x.requires_grad}
        assert {"head.weight", "head.bias"} < trained
        assert all("lora_" in n for n in trained if not n.startswith("head."))
        step(world)
