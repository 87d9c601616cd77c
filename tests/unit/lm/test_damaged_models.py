"""Damaged, incomplete and hostile model folders: one line that names the folder, and no training
of what is not there."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from rlzoo.cli import main
from rlzoo.errors import ModelError
from rlzoo.lm.loading import load_causal_lm, load_config, load_tokenizer, load_trunk
from rlzoo.lm.prompts import PromptFormat


@pytest.fixture
def folder(model_dir, tmp_path):
    place = tmp_path / "model"
    shutil.copytree(model_dir, place)
    return place


def weights(folder, change):
    """The weights' file written again with a change, and the header that transformers wants."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def line(call, *arguments, **options):
    with pytest.raises(ModelError) as caught:
        call(*arguments, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    return text


def first_of(tensors):
    return next(n for n in tensors if "layers" in n)


def test_a_weight_that_is_missing_is_refused(folder):
    weights(folder, lambda t: t.pop(first_of(t)))
    assert "weights are missing: model.layers" in line(load_causal_lm, folder)


def test_renamed_weights_are_refused_and_both_names_told(folder):
    weights(folder, lambda t: [t.update({f"old.{n}": t.pop(n)}) for n in list(t)])
    text = line(load_causal_lm, folder)
    assert "weights are missing" in text
    assert "more; the files contain old." in text


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("odd", [-5, [-1], [10**6, 10**9], [-(10**12), 2**63]])
def test_eos_ids_that_are_no_tokens_are_ignored_and_named(folder, file, odd, capsys):
    place = folder / file
    said = json.loads(place.read_text()) if place.is_file() else {}
    own = load_tokenizer(folder).eos_token_id
    listed = odd if isinstance(odd, list) else [odd]
    place.write_text(json.dumps(said | {"eos_token_id": [own, *listed]}))
    with pytest.warns(UserWarning, match="EOS ids"):
        assert load_config(folder).eos_token_id == [own]
    place.write_text(json.dumps(said | {"eos_token_id": odd}))
    assert main(["eval", f"model.path={folder}", "task=reverse", "eval.samples=2"]) == 0
    assert capsys.readouterr().err.count("ignoring the EOS ids") == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(folder, value):
    weights(folder, lambda t: t[first_of(t)].view(-1)[3].fill_(value))
    assert "weights are NaN or infinite: model.layers" in line(load_causal_lm, folder)


def test_large_weights_whose_sum_overflows_are_finite(folder):
    weights(folder, lambda t: t.update({first_of(t): t[first_of(t)].float().fill_(3e38)}))
    load_causal_lm(folder)


def test_a_trunk_is_held_to_the_same(folder):
    weights(folder, lambda t: t.pop(first_of(t)))
    assert "weights are missing" in line(load_trunk, folder)


WEIGHTS = {
    "an LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
    "empty": b"",
    "no header": b"\0" * 64,
    "a huge header": b"\xff" * 8 + b"{}",
}


@pytest.mark.parametrize("data", WEIGHTS.values(), ids=WEIGHTS)
def test_a_weights_file_that_is_none(folder, data):
    (folder / "model.safetensors").write_bytes(data)
    assert line(load_causal_lm, folder).startswith(f"{folder}: cannot be loaded: ")


def test_a_weights_file_cut_short_and_one_of_other_shapes(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    line(load_causal_lm, folder)
    file.write_bytes(whole)
    weights(folder, lambda t: t.update({first_of(t): torch.zeros(3, 3)}))
    line(load_causal_lm, folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"eos_token_id": "x"}', '{"eos_token_id": {}}', "\0"]
)
def test_a_generation_config_that_is_none(folder, text):
    (folder / "generation_config.json").write_text(text)
    assert "generation_config.json: cannot be read" in line(load_causal_lm, folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "\0", '{"model": 1}'])
def test_a_tokenizer_that_is_none(folder, name, text):
    (folder / name).write_text(text)
    if name == "tokenizer_config.json" and text == "{}":
        return  # without a word in it, it may do
    assert str(folder) in line(load_tokenizer, folder)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system here') }}",
        "{% for %}",
        "{{ messages[7].content }}",
        "{{ 1 / 0 }}",
        "{{ messages | unknown }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_a_template_that_refuses_is_one_line(model_dir, template):
    tokenizer = load_tokenizer(model_dir)
    tokenizer.chat_template = template
    prompts = PromptFormat(tokenizer)
    said = [{"role": "system", "content": "x"}, {"role": "user", "content": "1"}]
    text = line(prompts.text, said)
    assert text.startswith(
        "the tokenizer's chat template does not support messages from system, user: "
    )
    assert prompts.end_of_turn is None


@pytest.fixture
def adapter(model_dir, tmp_path):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(load_causal_lm(model_dir), LoraConfig(r=2, target_modules=["q_proj"]))
    place = tmp_path / "adapter"
    model.save_pretrained(place)
    config = json.loads((place / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(model_dir)
    (place / "adapter_config.json").write_text(json.dumps(config))
    return place


def test_an_adapter_that_would_be_unpickled_is_refused(adapter):
    file = adapter / "adapter_model.safetensors"
    load_causal_lm(adapter)
    torch.save(load_file(file), adapter / "adapter_model.bin")
    file.unlink()
    assert "no adapter_model.safetensors (pickled formats" in line(load_causal_lm, adapter)


def test_an_adapter_that_is_no_change_of_weights_is_refused(model_dir, tmp_path):
    from peft import PromptTuningConfig, get_peft_model

    tuned = PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    get_peft_model(load_causal_lm(model_dir), tuned).save_pretrained(tmp_path / "a")
    (file := tmp_path / "a" / "adapter_config.json").write_text(
        json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(model_dir)})
    )
    assert "PROMPT_TUNING adapter" in line(load_causal_lm, tmp_path / "a")


def test_an_adapter_is_held_to_the_same(adapter):
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name] * float("nan")}, file)
    assert "NaN or infinite" in line(load_causal_lm, adapter)
    tensors.pop(name)
    save_file(tensors, file)
    assert "missing adapter keys" in line(load_causal_lm, adapter)
    file.write_bytes(b"")
    line(load_causal_lm, adapter)
    (adapter / "adapter_config.json").write_text("{}")
    assert "adapter_config.json: cannot be read" in line(load_causal_lm, adapter)


AHEAD = {
    "run": ["run", "grpo", "model.path=MODEL"],
    "eval": ["eval", "model.path=MODEL", "task=reverse", "eval.samples=2"],
    "trace": ["trace", "grpo", "model.path=MODEL", "--prompt", "1"],
    "teacher": ["run", "opd", "teacher.path=MODEL"],
    "critic": ["run", "ppo_gae", "critic.init=MODEL"],
    "sft": ["model", "sft", "PAIRS", "--model", "MODEL", "--out", "OUT"],
}


@pytest.mark.parametrize(
    ("name", "what"), [("roberta", "run"), *(("bert", what) for what in AHEAD)]
)
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_reads_what_follows_is_refused(folder, name, what, tmp_path, capsys):
    tokenizer = load_tokenizer(folder)
    config = AutoConfig.for_model(
        name, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, max_position_embeddings=128,
    )  # fmt: skip
    pairs = [{"prompt": f"{i}+{i}=", "response": f"{2 * i}"} for i in range(40)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(x) + "\n" for x in pairs))
    places = {"MODEL": "other", "PAIRS": "p.jsonl", "OUT": "out"}
    words = AHEAD[what]
    for key, file in places.items():
        words = [w.replace(key, str(tmp_path / file)) for w in words]
    if what in ("run", "teacher", "critic"):
        words += ["task=reverse", "train.steps=1", "eval.samples=4", f"run.dir={tmp_path}/run"]
    if what in ("teacher", "critic"):
        words.append(f"model.path={folder}")
    for causal in (False, True):
        config.is_decoder = causal
        with torch.random.fork_rng():
            AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "other")
        tokenizer.save_pretrained(tmp_path / "other")
        assert main(words) == (0 if causal else 2)
        assert ("is not causal" in capsys.readouterr().err) != causal
