"""Every private name of transformers and torch that rlzoo relies on is there and does its work."""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer

from rlzoo.accel import hf_internals
from rlzoo.accel.passes import Packed


def needs(owner, *names):
    """Fail with one line if a later version has renamed what rlzoo relies on."""
    for name in names:
        if not hasattr(owner, name):
            pytest.fail(
                f"transformers {version('transformers')}, torch {version('torch')}: {owner!r:.80} "
                f"has no {name!r}; adapt rlzoo/accel/hf_internals.py",
                pytrace=False,
            )


@pytest.fixture
def model():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 11}
    config = LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)
    return LlamaForCausalLM(config).eval()


IDS = torch.tensor([[1, 2, 3]])


def test_a_head_is_replaced_and_comes_back(model):
    head = model.get_output_embeddings()
    before = model(input_ids=IDS).logits
    with hf_internals.changed((head, "forward", lambda hidden: hidden[..., :2])):
        assert model(input_ids=IDS).logits.shape == (1, 3, 2)
    assert torch.equal(model(input_ids=IDS).logits, before)


def test_a_softcap_is_left_out_and_comes_back():
    from transformers import Gemma2Config

    config = Gemma2Config(final_logit_softcapping=30.0)
    needs(config, "final_logit_softcapping")
    with hf_internals.changed((config, "final_logit_softcapping", None)):
        assert config.final_logit_softcapping is None
    assert config.final_logit_softcapping == 30.0


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neo", "phi", "bloom"])
def test_a_gelu_that_is_spelled_out_is_one_operation_with_the_same_value_and_slope(kind):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}
    more = {"attention_types": [[["global"], 1]]} if kind == "gpt_neo" else {}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **more)).double()

    def run():
        model.zero_grad()
        logits = model.eval()(input_ids=IDS).logits
        logits.square().sum().backward()
        return logits.detach(), [p.grad for p in model.parameters()]

    before = run()
    assert any(type(m).__name__ in hf_internals.SPELLED_OUT for m in model.modules())
    hf_internals.fuse_gelu(model)
    assert not any(type(m).__name__ in hf_internals.SPELLED_OUT for m in model.modules())
    torch.testing.assert_close(run(), before, rtol=1e-7, atol=1e-9)  # Bloom's constant has 8 digits


def test_rows_in_a_line_are_read_by_our_attention_for_one_pass(model):
    needs(model.config, "_attn_implementation")
    before, plain = hf_internals.attention_of(model.config), model(input_ids=IDS).logits
    line = Packed(torch.arange(3)[None], torch.arange(3))
    with hf_internals.in_line(model, line):
        assert hf_internals.attention_of(model.config) == hf_internals.NAME
        torch.testing.assert_close(model(input_ids=IDS).logits, plain)
    assert hf_internals.attention_of(model.config) == before


def test_a_layer_takes_over_what_a_filled_one_holds(model):
    cache = DynamicCache(config=model.config)
    model(input_ids=IDS, past_key_values=cache, use_cache=True)
    filled = cache.layers[0]
    needs(filled, "keys", "values", "is_initialized")
    layer = hf_internals.take_over(DynamicLayer, filled)
    assert layer is not filled
    assert layer.keys is filled.keys
    assert layer.values is filled.values
    assert layer.get_seq_length() == 3


def test_adapters_are_known_and_forgotten(model):
    from peft import LoraConfig

    needs(model, "_hf_peft_config_loaded")
    assert not hf_internals.has_adapters(model)
    model.add_adapter(LoraConfig(r=1, target_modules=["q_proj"]))
    assert hf_internals.has_adapters(model)
    hf_internals.forget_adapters(model)
    assert not hf_internals.has_adapters(model)


def test_an_embedding_leaves_a_sparse_gradient_and_is_itself_again():
    table = nn.Embedding(5, 2, padding_idx=3)
    needs(table, "sparse")
    with hf_internals.changed((table, "sparse", True)):
        table(torch.tensor([1, 1, 3])).sum().backward()
    assert table.weight.grad.is_sparse
    assert table.weight.grad.to_dense()[3].abs().sum() == 0
    assert not table.sparse


@pytest.mark.process
@pytest.mark.skipif(find_spec("scipy") is None, reason="needs scipy")
def test_models_come_without_scipy_which_is_imported_when_it_is_called():
    code = """if 1:
        import sys
        from rlzoo.accel.hf_internals import import_models
        import_models()
        assert not [name for name in sys.modules if name.startswith("scipy")]
        from transformers.loss.loss_for_object_detection import linear_sum_assignment
        assert linear_sum_assignment([[2, 1], [1, 2]])[1].tolist() == [1, 0]
        assert sys.modules["scipy.optimize"].linear_sum_assignment is not linear_sum_assignment
    """
    subprocess.run([sys.executable, "-c", code], check=True)
