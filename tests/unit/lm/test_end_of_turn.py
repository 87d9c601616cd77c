"""A chat template's end of turn ends a response, where prompts go through the template."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

from helpers.architectures import save_model
from rlzoo.env.token_env import TokenEnv
from rlzoo.lm.build import build_world
from rlzoo.lm.loading import load_tokenizer
from rlzoo.lm.prompts import PromptFormat
from rlzoo.plugin.component import Example
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect
from rlzoo_lab.api import show
from rlzoo_lab.supervised import export, sft

# As Qwen2.5's base models have it: EOS is one token, the template ends turns by another.
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content }}<|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant|{% endif %}"
)
ASKED = [{"role": "user", "content": "1+2="}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = save_model(tmp_path_factory.mktemp("qwen"), "llama", vocab_size=128)
    tokenizer = load_tokenizer(place)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture
def tokenizer(folder):
    return load_tokenizer(folder)


def make(zoo, folder, *words):
    words = ["recipe=grpo", f"model.path={folder}", "device=cpu", *words]
    return build_world(make_plan(compose(words, zoo), zoo))


def end_of(tokenizer):
    return tokenizer.convert_tokens_to_ids("<|im_end|>")


@pytest.mark.parametrize(
    ("template", "token"),
    [
        (CHATML, "<|im_end|>"),
        (CHATML.replace("<|im_end|>", "{{ eos_token }}"), "<eos>"),
        (CHATML.replace("<|im_end|>", "~"), None),
        ("{% for m in messages %}{{ m.role }}{% endfor %}", None),  # no word of the assistant's
        ("{{ raise_exception('no') }}", None),
        (None, None),
    ],
)
def test_it_is_found_from_the_template(tokenizer, template, token):
    tokenizer.chat_template = template
    expected = None if token is None else tokenizer.convert_tokens_to_ids(token)
    assert PromptFormat(tokenizer).end_of_turn == expected


def test_a_response_ends_where_the_template_ends_a_turn(zoo, folder, tokenizer):
    world = make(zoo, folder, "model.chat=always", "rollout.max_new_tokens=16")
    end = end_of(tokenizer)
    assert world.policy.eos_ids == sorted([tokenizer.eos_token_id, end])
    assert [n for n in world.engine.notes if "<|im_end|>" in n] == [
        "responses also end with <|im_end|>, the chat template's end of turn"
    ]
    head = world.policy.model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(128))
    head.bias.data[end] = 8.0
    batch = collect(world, [Example("1+2=", "3")] * 8, 2, stream="x", step=0)
    ended = (batch["response_ids"] == end) & (batch["response_mask"] > 0)
    assert ended.any()
    last = batch["response_mask"].sum(1).long() - 1
    assert (ended.nonzero()[:, 1] == last[ended.any(1)]).all()  # nothing follows it
    assert batch["terminated"][ended.any(1)].all()
    assert not any("<|im_end|>" in text for text in batch["responses"])


@pytest.mark.parametrize("chat", ["auto", "never"])
def test_prompts_of_text_end_as_they_did(zoo, folder, tokenizer, chat):
    world = make(zoo, folder, f"model.chat={chat}")
    assert world.policy.eos_ids == [tokenizer.eos_token_id]
    assert not any("im_end" in note for note in world.engine.notes)


def test_messages_of_a_task_go_through_the_template(zoo, folder, tokenizer, monkeypatch):
    plan = make_plan(compose(["recipe=grpo", f"model.path={folder}", "device=cpu"], zoo), zoo)
    monkeypatch.setattr(plan.task, "draw", lambda split, n, g: [Example(ASKED, "3")] * n)
    assert end_of(tokenizer) in build_world(plan).policy.eos_ids


def test_the_environment_ends_there_too(zoo, folder, tokenizer):
    env = TokenEnv("addition", overrides=[f"model.path={folder}", "model.chat=always"])
    env.reset(seed=0)
    _, _, terminated, _, _ = env.step(end_of(tokenizer))
    assert terminated


def test_a_demonstration_ends_as_the_template_ends_a_turn(tokenizer):
    reader = PromptFormat(tokenizer)
    assert sft.encode(reader, ASKED, "3")[1][-1] == end_of(tokenizer)
    assert sft.encode(reader, "1+2=", "3")[1][-1] == tokenizer.eos_token_id


@pytest.mark.parametrize("chat", ["always", "never"])
def test_an_exported_model_ends_there_too(folder, tokenizer, tmp_path, chat):
    rollout = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 8}
    recipe = {"model": {"chat": chat}, "rollout": rollout}
    export._save_whole(folder, tmp_path / "out", recipe, None, False)
    ends = GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id
    assert (end_of(tokenizer) in ends) == (chat == "always")


# ---------------------------------------------------------------- what is done is shown


def about_prompts(notes):
    return [note for note in notes if "chat template" in note and note.startswith("prompts")]


def shown(folder, *words):
    words = ["recipe=grpo", f"model.path={folder}", *words]
    return show.run(argparse.Namespace(words=words, changed=False, trainer=None)).document[
        "prompts"
    ]


def asks_for_always(note):
    return "model.chat=always" in note and "plain text" in note


@pytest.mark.parametrize(
    ("chat", "fits"),
    [
        ("auto", asks_for_always),
        ("always", lambda note: "are formatted with" in note),
        ("never", lambda note: "model.chat=never" in note and not asks_for_always(note)),
    ],
)
def test_a_run_and_show_report_how_a_template_is_used(zoo, folder, chat, fits):
    """Texts never reach a chat model bare in silence."""
    (note,) = about_prompts(make(zoo, folder, f"model.chat={chat}").engine.notes)
    assert fits(note)
    assert shown(folder, f"model.chat={chat}") == note


def test_messages_are_not_called_plain(zoo, folder, monkeypatch):
    plan = make_plan(compose(["recipe=grpo", f"model.path={folder}", "device=cpu"], zoo), zoo)
    monkeypatch.setattr(plan.task, "draw", lambda split, n, g: [Example(ASKED, "3")] * n)
    (note,) = about_prompts(build_world(plan).engine.notes)
    assert "are formatted with" in note
    assert "plain" not in note


def test_without_a_template_there_is_nothing_to_report(zoo, folder, tmp_path):
    place = save_model(tmp_path / "plain", "llama", vocab_size=128)
    assert about_prompts(make(zoo, place).engine.notes) == []
    assert shown(place) is None


def test_presets_of_chat_models_use_their_template(zoo):
    """Where a preset says nothing of it, its model has no template or is a base model."""
    chats = {name: compose([f"model={name}"], zoo, need_recipe=False).config.model.chat
             for name in list_configs("model")}  # fmt: skip
    tuned = {name for name in chats if name.endswith("-instruct")} | {"qwen3-0.6b"}
    assert len(tuned) == 5
    assert {name for name, chat in chats.items() if chat == "always"} == tuned


@pytest.mark.parametrize("chat", [None, "always"])
def test_sft_reads_prompts_as_asked_and_reports_it(folder, tokenizer, tmp_path, capsys, chat):
    parser = argparse.ArgumentParser()
    sft.add_arguments(parser)
    flags = ["--chat", chat] if chat else []
    asked = parser.parse_args(["data.jsonl", "--model", str(folder), "--out", "out", *flags])
    row = SimpleNamespace(prompt="1+2=")
    reader = sft.prompt_format(asked, tokenizer, SimpleNamespace(training=[row]))
    prompt, response = sft.encode(reader, "1+2=", "3")
    assert tokenizer.decode(prompt) == (reader.text(ASKED) if chat else "1+2=")
    assert response[-1] == (end_of(tokenizer) if chat else tokenizer.eos_token_id)
    said = capsys.readouterr().err
    assert "--chat always" in said
    assert ("plain text" in said) == (chat is None)


def test_a_preset_named_to_sft_brings_its_own(tokenizer, monkeypatch, tmp_path):
    (tmp_path / "configs" / "model").mkdir(parents=True)
    (tmp_path / "configs" / "model" / "talker.yaml").write_text("model: {path: x, chat: always}\n")
    monkeypatch.chdir(tmp_path)
    asked = argparse.Namespace(model="talker", chat=None)
    assert sft.prompt_format(asked, tokenizer, SimpleNamespace(training=[])).chat == "always"
    asked.chat = "never"
    assert sft.prompt_format(asked, tokenizer, SimpleNamespace(training=[])).chat == "never"
