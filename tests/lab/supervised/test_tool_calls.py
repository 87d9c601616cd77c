"""What messages have next to text: calls of tools, reasoning and tools reach the model, or a line
says that its chat template leaves them out."""

import json

import pytest

from helpers.architectures import save_model
from helpers.reward_models import make_tokenizer
from helpers.rows import USER, said, write
from rlzoo.errors import ModelError
from rlzoo.lm.loading import load_tokenizer
from rlzoo.lm.prompts import PromptFormat
from rlzoo_lab.supervised import reward_models, sft
from rlzoo_lab.supervised.pairs import read_demonstrations, read_preferences
from rlzoo_zoo.tasks.dataset import Dataset

CALLING = (
    "{% if tools %}[{% for t in tools %}{{ t.function.name }}{% endfor %}]{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}|"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant|{% endif %}"
)
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content }}<|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant|{% endif %}"
)
CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "x"}}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
WRITTEN = '{"name": "look", "arguments": {"at": "x"}}'
RESULT = {"role": "tool", "content": "3"}
SCHEMA = {"type": "function", "function": {"name": "look", "parameters": {}}}


def tokenizer(template=CALLING):
    found = make_tokenizer()
    found.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    found.chat_template = template
    return found


def encoded(row, tmp_path, template=CALLING, chat="auto"):
    """(prompt, response) as text, as `rlzoo model sft` trains on a row."""
    (row,) = read_demonstrations(write(tmp_path / "a.jsonl", [row])).rows
    own = tokenizer(template)
    return tuple(map(own.decode, sft.encode(PromptFormat(own, chat), row.prompt, row.response)))


@pytest.mark.parametrize(
    ("last", "response"),
    [
        (CALLS, WRITTEN),
        ({**CALLS, "content": None}, WRITTEN),
        ({**CALLS, "tool_calls": [{"function": {"name": "look", "arguments": '{"at": "x"}'}}]},
         WRITTEN),
        ({"role": "assistant", "content": "so ", "tool_calls": [CALL, CALL]},
         f"so {WRITTEN}{WRITTEN}"),
        ({**said("a"), "reasoning_content": "so"}, "(so)a"),
        (said("a"), "a"),
    ],
)  # fmt: skip
def test_a_response_is_trained_on_whole(last, response, tmp_path):
    prompt, found = encoded({"messages": [USER, last]}, tmp_path)
    assert prompt == "<|im_start|>user|hi<|im_end|> <|im_start|>assistant|"
    assert found == f"{response}<|im_end|>"


def test_a_prompt_has_its_tools_and_earlier_calls(tmp_path):
    turns = [USER, CALLS, {"role": "tool", "content": "3"}, said("a")]
    row = {"messages": turns, "tools": json.dumps([SCHEMA["function"]])}
    prompt, found = encoded(row, tmp_path)
    assert prompt == (
        f"[look]<|im_start|>user|hi<|im_end|> <|im_start|>assistant|{WRITTEN}<|im_end|> "
        "<|im_start|>tool|3<|im_end|> <|im_start|>assistant|"
    )
    assert found == "a<|im_end|>"


@pytest.mark.parametrize(
    ("template", "chat"),
    [
        (PLAIN, "auto"),
        (CALLING, "never"),
        (None, "never"),
        ("{% if messages | length > 1 %}!{% endif %}" + CALLING, "auto"),
    ],
)
def test_a_call_that_would_be_lost_is_refused(template, chat, golden, tmp_path):
    with golden.refuses(ModelError):
        encoded({"messages": [USER, CALLS]}, tmp_path, template, chat)


def test_a_line_names_the_fields_that_nothing_reads():
    chats = [
        "text",
        [{**USER, "tools": [SCHEMA]}, CALLS, {"role": "tool", "content": "3", "name": "look"}],
        [{**USER, "weight": 0}, {**said("a"), "reasoning_content": "so"}],
    ]
    every = "name, reasoning_content, tool_calls, tools, weight"
    for template, chat, names in ((CALLING, "auto", "name, weight"), (PLAIN, "auto", every),
                                  (CALLING, "never", every)):  # fmt: skip
        line = PromptFormat(tokenizer(template), chat).unread(chats)
        assert line.endswith(f": {names}")
    assert PromptFormat(tokenizer(CALLING)).unread([[USER], "text"]) is None
    required = "{% for m in messages %}{% if not m.name %}{{ raise_exception('name') }}{% endif %}x"
    reader = PromptFormat(tokenizer(required + "{% endfor %}"))
    assert reader.unread([[{**USER, "name": "n"}]]) is None


def test_a_preference_may_be_for_a_call(tmp_path, golden):
    row = {"prompt": [USER], "chosen": [CALLS], "rejected": [said("b")]}
    (pair,) = read_preferences(write(tmp_path / "a.jsonl", [row])).rows
    own = tokenizer()
    assert WRITTEN in own.decode(reward_models.encode(own, pair.prompt, pair.chosen))
    with golden.refuses(ModelError):
        reward_models.encode(tokenizer(None), "p", CALLS)


def test_prompts_of_a_run_have_tools_and_calls(tmp_path):
    rows = [
        {"prompt": json.dumps([{"role": "user", "content": f"{i}"}, CALLS, RESULT]), "answer": i,
         "tools": [SCHEMA]}
        for i in range(3)
    ]  # fmt: skip
    task = Dataset(path=str(write(tmp_path / "a.jsonl", rows)))
    (first,) = (e for e in task.rows["train"] + task.rows["test"] if e.index == 0)
    text = PromptFormat(tokenizer()).text(first.prompt)
    assert text.startswith(f"[look]<|im_start|>user|0<|im_end|> <|im_start|>assistant|{WRITTEN}")


def test_the_verb_trains_on_calls_and_names_what_is_lost(tmp_path, capsys):
    from rlzoo.cli import main

    folder = save_model(tmp_path / "model", "llama", vocab_size=128)
    own = load_tokenizer(folder)
    own.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    own.chat_template = CALLING
    own.save_pretrained(folder)
    rows = [
        {"messages": [{"role": "user", "content": f"{i}", "name": "n"}, CALLS]} for i in range(9)
    ]
    file = write(tmp_path / "a.jsonl", rows)
    words = ["--model", folder, "--out", tmp_path / "out", "--epochs", "1", "--device", "cpu"]
    assert main(["model", "sft", str(file), *map(str, words)]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "columns: messages (messages)" in printed
    assert "fields of messages: name" in printed
