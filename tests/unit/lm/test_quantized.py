"""A folder of quantized weights: transformers dequantizes some formats, and a note says so."""

import json

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from helpers.architectures import save_model
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan


def quantize(folder):
    """The layers' linear weights as fp8, in one block each; returns what they stand for."""
    file, plain, stored = folder / "model.safetensors", {}, {}
    for name, weight in load_file(file).items():
        if "proj" not in name:
            stored[name] = weight
            continue
        scale = weight.abs().max() / 448
        stored[name] = (weight / scale).to(torch.float8_e4m3fn)
        stored[f"{name}_scale_inv"] = scale.reshape(1, 1)
        plain[name] = stored[name].float() * scale
    save_file(stored, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))
    return plain


def test_fp8_weights_become_float32_and_a_note_says_so(zoo, words, tmp_path):
    folder = save_model(tmp_path / "model", "llama")
    want = quantize(folder)
    asked = ["recipe=grpo", *words, f"model.path={folder}"]
    models = build_world(make_plan(compose(asked, zoo), zoo))
    found = dict(models.policy.model.named_parameters())
    assert want
    for name, weight in want.items():
        torch.testing.assert_close(found[name].data, weight, atol=1e-6, rtol=0)
    assert any("fp8" in note and "float32" in note for note in models.engine.notes)
    models.policy.model.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    for name, weight in again.named_parameters():
        assert torch.equal(weight, found[name].to(weight.dtype)), name


def test_other_folders_have_no_such_note(zoo, words):
    models = build_world(make_plan(compose(["recipe=grpo", *words], zoo), zoo))
    assert not any("weights" in note for note in models.engine.notes)
