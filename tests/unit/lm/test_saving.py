"""What is saved is what was trained."""

import pytest
import torch
from transformers import AutoModelForCausalLM, RwkvConfig

from helpers.architectures import SPECIAL, TOKENIZER, save_model
from rlzoo.errors import ModelError
from rlzoo.lm.build import build_policy
from rlzoo.lm.loading import load_causal_lm
from rlzoo.recipe.compose import compose

IDS = torch.tensor([[5, 9, 14, 7, 20, 11]])


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def policy_of(zoo, folder, *words):
    words = ["recipe=grpo", f"model.path={folder}", "device=cpu", *words]
    return build_policy(compose(words, zoo).config)


@pytest.mark.parametrize(
    ("name", "target", "other"),
    [
        ("gpt2", "lm_head", "transformer.wte"),
        ("gpt2", "wte", "lm_head"),
        ("llama", "lm_head", "model.embed_tokens"),
        ("llama", "model.embed_tokens", "lm_head"),
    ],
)
def test_an_adapter_on_tied_weights_is_refused(zoo, tmp_path, name, target, other):
    folder = save_model(tmp_path, name, tie_word_embeddings=True)
    words = ("model.lora.rank=2", f"model.lora.targets=[{target}]")
    with pytest.raises(ModelError) as error:
        policy_of(zoo, folder, *words)
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(f"model.lora.targets: {target} shares its weights with {other}, ")


def test_other_layers_of_a_tied_model_take_adapters(zoo, tmp_path):
    folder = save_model(tmp_path, "gpt2")
    policy_of(zoo, folder, "model.lora.rank=2")
    policy_of(zoo, folder, "model.lora.rank=2", "model.lora.targets=[c_attn]")


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_an_adapter_on_an_untied_head_is_saved_as_it_computes(zoo, tmp_path, target):
    folder = save_model(tmp_path / "base", "llama", tie_word_embeddings=False)
    model = policy_of(zoo, folder, "model.lora.rank=2", f"model.lora.targets=[{target}]").model
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data.normal_()
    model.save_pretrained(tmp_path / "run")
    TOKENIZER.save_pretrained(tmp_path / "run")
    again = load_causal_lm(tmp_path / "run")
    torch.testing.assert_close(logits(again), logits(model), atol=1e-4, rtol=0)
    assert (logits(again) - logits(load_causal_lm(folder))).abs().max() > 0.1


def test_rwkv_is_saved_as_it_computes(tmp_path):
    config = RwkvConfig(
        hidden_size=16, attention_hidden_size=16, num_hidden_layers=8, rescale_every=2, **SPECIAL,
    )  # fmt: skip
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(config)
    for weight in made.parameters():
        weight.data.normal_(0, 0.3)
    made.save_pretrained(tmp_path / "base")
    model = load_causal_lm(tmp_path / "base")
    before = logits(model)
    # In train mode it does not rescale: this is what it was made to compute.
    torch.testing.assert_close(before, logits(made.train()), atol=1e-5, rtol=0)
    model.save_pretrained(tmp_path / "run")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "run").eval()
    for again in (plain, load_causal_lm(tmp_path / "run")):
        torch.testing.assert_close(logits(again), before, atol=1e-5, rtol=0)
