"""The weights that a sampler elsewhere is handed: the model's own checkpoint, by its names."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import MixtralConfig

from helpers import architectures
from rlzoo.lm.loading import load_causal_lm
from rlzoo.lm.lora import add_lora
from rlzoo_zoo.samplers.elsewhere import fingerprint, weights

MIXTRAL = {"num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.fixture
def folder(request, tmp_path, monkeypatch):
    """A random model; `tied` and `mixtral` beside the architectures of the helper."""
    name = request.param
    mixtral = MixtralConfig(**architectures.COMMON, **MIXTRAL, **architectures.SPECIAL)
    monkeypatch.setitem(architectures.CONFIGS, "mixtral", lambda: mixtral)
    changes = {"tie_word_embeddings": True} if name == "tied" else {}
    return architectures.save_model(tmp_path / "m", "llama" if name == "tied" else name, **changes)


@pytest.mark.parametrize(
    ("folder", "lora"),
    [("llama", 0), ("llama", 2), ("tied", 0), ("tied", 2), ("gpt2", 0), ("gpt2", 2),
     ("mixtral", 0), ("mixtral", 2)],
    indirect=["folder"],
)  # fmt: skip
def test_they_are_the_checkpoints(folder, lora, tmp_path):
    """lora: the rank of adapters, 0 for none."""
    model = load_causal_lm(folder)
    if lora:
        add_lora(model, rank=lora, alpha=8.0, targets=None, base=str(folder))
        before = weights(SimpleNamespace(model=model, adapter=True))
        for name, p in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(p)
    policy = SimpleNamespace(model=model, adapter=True)
    model.save_pretrained(tmp_path / "saved")
    found = weights(policy)
    if lora:  # as a stranger would merge the saved adapter
        load_causal_lm(tmp_path / "saved").save_pretrained(tmp_path / "merged")
        assert any((found[n] - before[n]).abs().max() > 0.1 for n in found), "adapters do nothing"
    wanted = load_file(tmp_path / ("merged" if lora else "saved") / "model.safetensors")
    assert set(found) == set(wanted)
    for name, x in wanted.items():
        torch.testing.assert_close(found[name], x, atol=1e-6, rtol=0, msg=name)
    if lora:  # the reference is the same network, its adapters off
        plain = weights(SimpleNamespace(model=model, adapter=False))
        assert all(torch.equal(plain[name], before[name]) for name in before)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_a_fingerprint_tells_weights_apart(folder):
    policy = SimpleNamespace(model=load_causal_lm(folder), adapter=True)
    one = fingerprint(policy)
    assert fingerprint(policy) == one
    with torch.no_grad():
        policy.model.model.layers[0].mlp.up_proj.weight[3, 4] += 1e-7
    assert fingerprint(policy) != one
    assert fingerprint(SimpleNamespace(model=policy.model, adapter=False)) != fingerprint(policy)
