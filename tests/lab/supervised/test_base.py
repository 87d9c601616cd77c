"""The embedded base models: tokenizer, warm start, and the folders that are shipped."""

import json

import pytest
import torch
from make_base import make_base
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import ROOT
from rlzoo.format.text import readable
from rlzoo_lab.supervised import warm_start as base
from rlzoo_lab.supervised.tiny import build_tokenizer
from rlzoo_zoo.tasks.addition import Addition
from rlzoo_zoo.tasks.reverse import Reverse

CONFIGS = ROOT / "configs"
SPEC = {
    "seed": 3,
    "architecture": {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    },
    "steps": 8,
    "batch": 16,
    "lr": 0.01,
    "right": 0.4,
    "mix": {
        "sums": {"task": "addition", "weight": 3, "options": {"digits": 1}},
        "words": {"task": "reverse", "weight": 1, "options": {}},
    },
}
TASKS = {"sums": Addition(digits=1), "words": Reverse()}


SHIPPED = sorted(folder.parent.name for folder in (CONFIGS / "model").glob("*/config.json"))


@pytest.fixture(params=SHIPPED)
def shipped(request):
    return CONFIGS / "model" / request.param


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def generate(folder, examples, greedy):
    """Response texts without EOS, and whether each one ended with it."""
    model, tokenizer = load(folder)
    prompts = tokenizer(
        [e.prompt for e in examples], return_tensors="pt", padding=True, padding_side="left"
    )
    torch.manual_seed(0)
    ids = model.generate(**prompts, max_new_tokens=8, do_sample=not greedy, top_k=0)
    ids = ids[:, prompts["input_ids"].shape[1] :]
    return tokenizer.batch_decode(ids, skip_special_tokens=True), (ids == 1).any(1)


def test_tokenizer_round_trip_and_unknown_characters():
    tokenizer = build_tokenizer()
    text = "".join(map(chr, range(32, 127))) + "\n  two  spaces , and a ' .\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text)  # one token per character, nothing added
    assert len(tokenizer) == 3 + 96
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert tokenizer("aé\tb")["input_ids"] == [ids[65], 2, 2, ids[66]]


def test_every_byte_makes_every_text_readable():
    tokenizer = build_tokenizer("你", every_byte=True)
    for text in ("1+1=2?\n", "你é\tb\0", "🙂 ok", "好"):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert 2 not in ids
    assert tokenizer.convert_ids_to_tokens(tokenizer("你好")["input_ids"]) == [
        "你", "<0xE5>", "<0xA5>", "<0xBD>"]  # fmt: skip
    assert [readable("\ufffd", t) for t in ("<0xE5>", "<0xBD>")] == ["\\xe5", "\\xbd"]


def test_labels_are_the_response_and_eos_alone():
    tokenizer = build_tokenizer()
    ids, labels = base.encode(tokenizer, [("1+2=", "3"), ("ab>", "ba")])
    three, b, a = tokenizer("3ba")["input_ids"]
    ignored = base.IGNORED
    assert labels.tolist() == [[ignored] * 4 + [three, 1], [ignored] * 3 + [b, a, 1]]
    assert tokenizer.batch_decode(ids) == ["1+2=3<eos>", "ab>ba<eos>"]


def test_demonstrations_are_right_as_often_as_asked():
    spec = SPEC | {"batch": 2000}
    pairs = base.demonstrations(spec, TASKS, 0.3, torch.Generator().manual_seed(0))
    sums = [(p, r) for p, r in pairs if p.endswith("=")]
    right = sum(sum(map(int, p[:-1].split("+"))) == int(r) for p, r in sums)
    assert len(pairs) == 2000
    assert abs(len(sums) / 2000 - 0.75) < 0.04
    assert abs(right / len(sums) - 0.3) < 0.05


def test_make_base_is_deterministic_and_loads_as_any_transformers_folder(tmp_path):
    losses = []
    before = torch.get_rng_state()
    make_base(SPEC, TASKS, tmp_path / "a", lambda *report: losses.append(report))
    assert torch.equal(torch.get_rng_state(), before)
    make_base(SPEC, TASKS, tmp_path / "b")
    make_base(SPEC | {"seed": 4}, TASKS, tmp_path / "c")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    assert [step for step, _, _ in losses] == list(range(1, 9))
    assert losses[-1][2] < losses[0][2]

    model, tokenizer = load(tmp_path / "a")
    assert all(p.dtype == torch.float32 for p in model.parameters())
    logits = model(**tokenizer("1+2=", return_tensors="pt")).logits
    assert logits.shape == (1, 4, len(tokenizer))
    assert logits.isfinite().all()


def test_shipped_folders_say_how_responses_end(shipped):
    model, tokenizer = load(shipped)
    for config in (model.config, model.generation_config):
        assert (config.pad_token_id, config.eos_token_id) == (0, 1)
        assert config.bos_token_id is None
    assert tokenizer.decode(tokenizer("17+25=\n")["input_ids"]) == "17+25=\n"
    saved = json.loads((shipped / "config.json").read_text())
    spec = OmegaConf.to_container(OmegaConf.load(CONFIGS / "base" / f"{shipped.name}.yaml"))
    assert saved.items() >= spec["architecture"].items()  # made from the spec beside it


def test_shipped_folders_are_small():
    size = {}
    for name in SHIPPED:
        model, _ = load(CONFIGS / "model" / name)
        size[name] = sum(p.numel() for p in model.parameters())
    assert {"tiny", "nano", "turns", "novice", "blind", "reader"} <= size.keys()
    assert 400_000 < size.pop("tiny") < 600_000
    assert all(50_000 < n < 75_000 for n in size.values())
    files = (CONFIGS / "model").rglob("*.safetensors")
    assert sum(file.stat().st_size for file in files) <= 1.8e6


@pytest.mark.parametrize("task", [Addition(), Reverse()])
def test_the_base_knows_what_it_seldom_says(task):
    """A warm start leaves RL something to amplify: greedy is far better than sampled."""
    examples = task.draw("test", 400, torch.Generator().manual_seed(0))
    accuracy = {}
    for greedy in (False, True):
        responses, ended = generate(CONFIGS / "model" / "tiny", examples, greedy)
        right = task.is_correct(responses, [e.answer for e in examples]) & ended
        accuracy[greedy] = right.float().mean()
    assert 0.25 < accuracy[False] < 0.41  # .28 to .38, and two standard errors
    assert accuracy[True] > 0.75
