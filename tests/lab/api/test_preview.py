"""The memory of weights: parameters to the last one, and what asks for which copies."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from helpers import ROOT
from helpers.architectures import CONFIGS, save_model
from rlzoo.cli import main
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs, read_layer
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.api.preview import estimate, find_sizes, read_sizes
from rlzoo_lab.view.numbers import show_bytes

HUB = [n for n, path in list_configs("model").items() if "model.shape" in read_layer(path).values]


def counted(config):
    """The parameters that transformers makes of a config, on no device."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return model


def as_json(config):
    return json.loads(config.to_json_string())


def plan_of(zoo, *words, recipe="ppo_gae"):
    return make_plan(compose([f"recipe={recipe}", "device=cpu", *words], zoo), zoo)


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize("change", [{}, {"tie_word_embeddings": False}], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "gemma3"])
def test_parameters_are_counted_to_the_last_one(name, change, tmp_path):
    """Of the weights' file, and of the config alone."""
    config = type(CONFIGS[name]())(**{**as_json(CONFIGS[name]()), **change})
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    for folder in (tmp_path, None):
        sizes = read_sizes(json.loads((tmp_path / "config.json").read_text()), folder)
        assert sizes.exact
        assert sizes.parameters == model.num_parameters()
        assert sizes.trunk == model.base_model.num_parameters()


def test_the_presets_of_hub_models_carry_their_shape():
    for name in HUB:
        values = read_layer(list_configs("model")[name]).values
        sizes = read_sizes(values["model.shape"])
        assert sizes.exact
        assert values["model.name"] == name
        stated = name.split("-")[2 if name.startswith("llama") else 1]
        unit = 1e9 if "b" in stated else 1e6
        assert sizes.parameters == pytest.approx(float(stated[:-1]) * unit, rel=0.25)


def test_hub_presets_are_listed_in_the_docs():
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert len(HUB) == 9
    assert [name for name in HUB if f"`model={name}`" not in text] == []


def test_a_family_that_is_not_known_is_an_estimate():
    config = as_json(CONFIGS["llama"]())
    assert read_sizes(config).exact
    assert not read_sizes(config | {"model_type": "something_new"}).exact
    assert read_sizes({"model_type": "llama"}) is None
    assert read_sizes({"text_config": config}).parameters == read_sizes(config).parameters


@pytest.mark.parametrize("targets", [None, ["q_proj", "down_proj"], ["c_attn"], ["c_proj"]])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_adapters_are_counted_to_the_last_one(name, targets):
    from rlzoo.lm.lora import add_lora

    if targets and (name == "gpt2") != targets[0].startswith("c_"):
        return
    model = counted(CONFIGS[name]()).to_empty(device="cpu")
    add_lora(model, rank=3, alpha=6, targets=targets, base="x")
    trained = sum(x.numel() for x in model.parameters() if x.requires_grad)
    assert read_sizes(as_json(CONFIGS[name]())).adapters(3, targets) == trained


# ---------------------------------------------------------------- where sizes come from


def test_sizes_are_read_where_the_model_is_and_else_told(zoo, tmp_path, monkeypatch):
    save_model(tmp_path / "it", "qwen2")
    plan = plan_of(zoo, f"model.path={tmp_path}/it", "model.shape={model_type: llama}")
    found, source = find_sizes(plan.recipe.config.model)
    assert "model.layers.0.self_attn.q_proj.bias" in found.shapes
    assert source == str(tmp_path / "it" / "config.json")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    said = {"base_model_name_or_path": str(tmp_path / "it")}
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    plan = plan_of(zoo, f"model.path={adapter}")
    assert find_sizes(plan.recipe.config.model)[0] == found
    plan = plan_of(zoo, "model=smollm2-135m")
    assert find_sizes(plan.recipe.config.model)[1] == "model.shape"
    assert estimate(plan_of(zoo, "model.path=someone/unknown")) is None


def test_a_hub_model_in_the_cache_is_read_there(zoo, tmp_path, monkeypatch):
    from huggingface_hub import constants

    place = tmp_path / "models--someone--small"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0123")
    save_model(place / "snapshots" / "0123", "llama")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    found = estimate(plan_of(zoo, "model.path=someone/small"))
    assert "0123" in found["from"]


# ---------------------------------------------------------------- bytes


def items_of(zoo, *words, **named):
    plan = plan_of(zoo, "model=smollm2-135m", *words, **named)
    found, (sizes, _) = estimate(plan), find_sizes(plan.recipe.config.model)
    items = {item["what"]: item["bytes"] for item in found["items"]}
    assert found["total_bytes"] == sum(items.values())
    return items, sizes


def test_each_network_has_weights_gradients_and_two_moments(zoo):
    items, sizes = items_of(zoo)
    n, trunk = sizes.parameters, sizes.trunk
    head = sizes.hidden + 1
    assert items == {"actor": 16 * n, "reference": 4 * n, "critic": 16 * trunk,
                     "critic: head": 16 * head}  # fmt: skip
    assert items_of(zoo, "actor.optimizer=sgd")[0]["actor"] == 8 * n
    assert "critic" not in items_of(zoo, recipe="grpo")[0]
    assert "reference" not in items_of(zoo, "kl.place=none")[0]


@pytest.mark.parametrize(("dtype", "size"), [("float64", 8), ("bfloat16", 2), ("float16", 2)])
def test_every_dtype_has_its_bytes(zoo, dtype, size):
    items, sizes = items_of(zoo, f"model.dtype={dtype}")
    assert items["reference"] == size * sizes.parameters


def test_what_is_shared_is_not_counted_twice(zoo):
    items, sizes = items_of(zoo, "critic.trunk=shared")
    assert items["critic: head"] == 16 * (sizes.hidden + 1)
    assert "critic" not in items
    items, sizes = items_of(zoo, "model.lora.rank=8", "model.dtype=bfloat16")
    assert "reference" not in items  # the adapter off
    assert items["actor"] == 2 * sizes.parameters
    assert items["actor: adapters"] == 16 * sizes.adapters(8, None)


def test_bytes_in_words():
    assert [show_bytes(n) for n in (7, 2048, 3 * 2**20, 5 * 2**30)] == [
        "7 B", "2 KiB", "3 MiB", "5 GiB"]  # fmt: skip


# ---------------------------------------------------------------- show


def test_show_prints_it_before_anything_is_loaded(capsys, monkeypatch):
    import transformers

    def no(*given, **named):
        raise AssertionError("loaded")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", no)
    assert main(["show", "recipe=grpo", "model=qwen2.5-0.5b"]) == 0
    shown = capsys.readouterr().out
    assert "memory on" in shown
    assert "494,032,768 parameters, by model.shape" in " ".join(shown.split())
    assert main(["show", "recipe=grpo", "model=qwen2.5-0.5b", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["memory"]
    assert document["parameters"] == 494_032_768
    assert document["parameters_exact"] is True
    assert document["total_bytes"] > 4 * 4 * 494_032_768
    assert {"what", "parameters", "width", "copies", "bytes", "how"} == set(document["items"][0])


def test_show_says_that_it_does_not_know(capsys):
    words = ["show", "recipe=grpo", "model.path=someone/unknown"]
    assert main(words) == 0
    assert "memory: unknown, because there is neither" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"] is None


def test_memory_is_counted_before_the_data_is_there(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    words = ["recipe=grpo", "model=qwen2.5-0.5b-instruct", "task=gsm8k", "device=cpu"]
    assert main(["show", "--json", *words]) == 0
    out, err = capsys.readouterr()
    assert "openai/gsm8k" in err
    memory = json.loads(out)["memory"]
    assert memory["total_bytes"] > 4 * memory["parameters"]
    assert main(["show", *words, "task.path=absent.jsonl"]) == 2  # a file of one's own: an error
    assert "absent.jsonl" in capsys.readouterr().err
