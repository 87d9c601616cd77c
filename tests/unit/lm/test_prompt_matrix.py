"""Settings of tokenizers x kinds of prompts: a row's ids are those of the model's own template, or
of its text with what comes before it and nothing after; or there is a line."""

import json
from datetime import datetime
from itertools import product
from string import ascii_letters

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from helpers import tokenizers
from helpers.architectures import save_model
from rlzoo.errors import ModelError, UsageError
from rlzoo.lm import templates
from rlzoo.lm.build import build_world
from rlzoo.lm.loading import load_tokenizer
from rlzoo.lm.prompts import PromptFormat, affixes, how_read, opened
from rlzoo.lm.templates import bind
from rlzoo.mdp.rules import decode
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.supervised import reward_models, sft

EOS, BOS, PAD, START, END = SPECIAL = ["</s>", "<s>", "<pad>", "<|start|>", "<|end|>"]
CHATML = (
    "{% for m in messages %}<|start|>{{ m.role }}:{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant:{% endif %}"
)
INST = (  # as Llama 2's: BOS, a system message within the first user's, EOS after an answer
    "{{ bos_token }}{% set s = namespace(t='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set s.t = m.content + '!' %}"
    "{% elif m.role == 'user' %}{{ '[INST]' + s.t + m.content + '[/INST]' }}{% set s.t = '' %}"
    "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
)
DATED = [  # a constant format, and formats that are not
    f"{before}{{{{ 'on ' + strftime_now({how}) + '.' }}}}{CHATML}"
    for before, how in [
        ("", "'%d %b %Y'"), ("{% set f = '%d %b %Y' %}", "f"), ("", "format='%-d %b ' + '%Y'"),
        ("{% macro day(f) %}{{ strftime_now(f) }}{% endmacro %}{{ day('%b') }}", "'%d %b %Y'"),
    ]
]  # fmt: skip
LETTERS = [*ascii_letters, *"0123456789+=?!.:[]/<>|_"]


def byte_level():
    return tokenizers.byte_level(SPECIAL)


def sentencepiece():
    return tokenizers.metaspace([*SPECIAL, "<unk>", "▁", *LETTERS], unk_token="<unk>")


def letters():
    core = Tokenizer(models.WordLevel({t: i for i, t in enumerate([*SPECIAL, " ", *LETTERS])}))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    return core


ADDS = {  # what the post-processor puts around a text
    "neither": "$A", "BOS": "<s> $A", "EOS": "$A </s>", "both": "<s> $A </s>",
    "doubled": "<s> <s> $A",
}  # fmt: skip
MORE = {"": {}, "pad = EOS": {"pad_token": EOS}, "added": {"extra": ["<think>", "<tool>"]}}


def make(kind=letters, adds="neither", more="", template=CHATML):
    core, how = kind(), {"pad_token": PAD, **MORE[more]}
    around = [(t, core.token_to_id(t)) for t in (BOS, EOS)]
    core.post_processor = processors.TemplateProcessing(single=ADDS[adds], special_tokens=around)
    extra = how.pop("extra", [])
    found = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=EOS, bos_token=BOS, chat_template=template,
        additional_special_tokens=[START, END], **how,
    )  # fmt: skip
    found.add_tokens([AddedToken(t, special=False) for t in extra])
    return bind(found, None)


USER = {"role": "user", "content": "1+2=?"}
SYSTEM = {"role": "system", "content": "Add"}
ANSWER = {"role": "assistant", "content": "3"}
CHATS = {"a turn": [USER], "a system": [SYSTEM, USER], "turns": [USER, ANSWER, USER]}
SETTINGS = list(product((byte_level, sentencepiece, letters), ADDS, MORE))  # 45


@pytest.mark.parametrize("template", [CHATML, INST], ids=["chatml", "inst"])
@pytest.mark.parametrize(("kind", "adds", "more"), SETTINGS)
def test_ids_are_those_of_the_model(kind, adds, more, template):
    tokenizer = make(kind, adds, more, template)
    form = PromptFormat(tokenizer)
    bos = [1] * ADDS[adds].count(BOS)
    for text in ("1+2=", "a b", "<think>x", "a."):
        plain = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert form.encode(text) == bos + plain
    for chat in CHATS.values():
        own = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert form.encode(chat) == own
        assert form.text(chat) == text
        # Rendered already: BOS, which the tokenizer adds, once, whether the template wrote it.
        said = own[1:] if own[:1] == [1] else own
        if bos != [1, 1]:
            assert form.encode(text) == (bos or own[: len(own) - len(said)]) + said
    with pytest.raises(ModelError, match="ends with an assistant's message: '3'"):
        form.encode([USER, ANSWER])
    notes = form.examined(["1+2=", "1+3="])
    assert any(EOS in note for note in notes) == ("EOS" in adds or adds == "both")
    for response in ("3", "3</s>", "3</s> ", "3</s></s>"):  # ended once
        prompt, ids = sft.encode(form, "1+2=", response)
        assert (prompt, ids.count(0), ids[-1]) == (form.encode("1+2="), 1, 0)
        scored = reward_models.encode(tokenizer, "1+2=", response)
        assert scored == reward_models.encode(tokenizer, "1+2=", "3")
    odd = len(tokenizer) + 5  # of a larger head
    row = {"response_ids": torch.tensor([[*tokenizer("4")["input_ids"][-1:], odd, 0]])}
    assert (
        f"<|{odd}|>" in decode(tokenizer, {**row, "response_attention": torch.ones(1, 3)}, [0])[0]
    )


@pytest.mark.parametrize("adds", ADDS)
def test_a_reward_model_without_a_template_reads_no_end_within(adds):
    tokenizer = make(letters, adds, template=None)
    ids = reward_models.encode(tokenizer, "1+2=", "3</s>")
    assert ids == opened(tokenizer, tokenizer("1+2=")["input_ids"]) + tokenizer.encode(
        "3", add_special_tokens=False
    ) + [0]
    assert ids.count(0) == 1


def test_text_after_an_end_is_refused_in_a_demonstration():
    form = PromptFormat(make())
    with pytest.raises(UsageError, match="text follows </s>"):
        sft.encode(form, "q", "a</s>b")
    assert sft.encode(form, [USER], "3<|end|>")[1].count(4) == 1


@pytest.mark.parametrize(("kind", "adds", "more"), SETTINGS[::4])
def test_what_is_around_a_text(kind, adds, more):
    before, _, after = ADDS[adds].partition("$A")
    assert affixes(make(kind, adds, more)) == ([1] * before.count(BOS), [0] * after.count(EOS))


# ---------------------------------------------------------------- templates


def test_a_prompts_own_system_message_replaces_the_recipes():
    form = PromptFormat(make(), "auto", "Be brief")
    assert form.text([SYSTEM, USER]).count("system") == 1
    assert "Be brief" in form.text([USER])
    assert any("1 of 2 prompts" in n for n in form.examined([[SYSTEM, USER], [USER]]))
    with pytest.raises(ModelError, match="model.system has no effect"):
        form.examined([[SYSTEM, USER]])
    with pytest.raises(ModelError, match="model.system has no effect"):
        form.examined(["1+2="])


def test_parts_of_text_are_joined():
    form = PromptFormat(make(), "always")
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "2="}]
    assert form.text([{"role": "user", "content": parts}]) == form.text("1+2=")
    assert PromptFormat(make(), "never").text([{"role": "user", "content": parts}]) == "1+2="
    with pytest.raises(ModelError, match="other than text"):
        form.text([{"role": "user", "content": [{"type": "image"}]}])


@pytest.mark.parametrize(
    ("template", "chat", "role"),
    [
        ("{{ 'Say: ' }}", [USER], "user"),
        ("{% for m in messages[-1:] %}{{ m.content }}{% endfor %}", [SYSTEM, USER], "system"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
         [USER, ANSWER, USER], "assistant"),
    ],
)  # fmt: skip
def test_a_template_that_leaves_text_out_is_refused(template, chat, role):
    form = PromptFormat(make(template=template))
    with pytest.raises(ModelError, match=f"omits the text of a {role} message"):
        form.text(chat)


def test_prompts_that_become_alike_are_refused():
    short = "{% for m in messages %}{{ m.content[:3] if m.content | length < 9 else m.content }}"
    form = PromptFormat(make(template=short + "{% endfor %}"), "always")
    with pytest.raises(ModelError, match="makes all prompts '1\\+2'"):
        form.examined(["1+2=", "1+23="])


@pytest.mark.parametrize(("chat", "prompts"), [("auto", [[USER]]), ("always", ["1+2="] * 2)])
def test_a_missing_template_is_reported_for_any_prompts(chat, prompts):
    with pytest.raises(ModelError, match="no chat template"):
        PromptFormat(make(template=None), chat).examined(prompts)


def test_prompts_that_are_rendered_already():
    form, text = PromptFormat(make()), PromptFormat(make()).text([USER])
    (note,) = form.examined([text, text.replace("2", "3")])
    assert "rendered already" in note
    for again in (PromptFormat(make(), "always").examined, form.examined):
        prompt = text if again.__self__.chat == "always" else [{**USER, "content": text}]
        with pytest.raises(ModelError, match="rendered already"):
            again([prompt, prompt])
    for chat in ("auto", "always"):  # a few: by mistake, or of another source
        notes = PromptFormat(make(), chat).examined([text, "1+3=", "1+4="])
        assert any("1 of 3 prompts contain special tokens" in note for note in notes)
    ended = form.examined(["1+2=</s>", "1+3="])
    assert any("1 of 2 prompts end with </s>" in note for note in ended)


@pytest.mark.parametrize("chat", ["auto", "always"])
def test_an_answered_prompt_is_reported_before_a_run(chat):
    with pytest.raises(ModelError, match="assistant's message"):
        how_read(chat, [[USER], [USER, ANSWER]])
    assert "never" in how_read("never", [[USER, ANSWER]])


# ---------------------------------------------------------------- arguments and dates

THINK = CHATML + "{% if enable_thinking is defined and not enable_thinking %}<none>{% endif %}"


def test_arguments_reach_the_template_everywhere(zoo, tmp_path):
    folder = save_model(tmp_path / "m", "llama")
    kept = load_tokenizer(folder)
    kept.chat_template = THINK
    kept.save_pretrained(folder)
    words = ["recipe=grpo", f"model.path={folder}", "device=cpu", "model.chat=always"]
    for setting in ("model.chat_args.enable_thinking=false",
                    "model.chat_args={enable_thinking: false}"):  # fmt: skip
        world = build_world(make_plan(compose([*words, setting], zoo), zoo))
        assert world.prompt_format.text("1+2=").endswith("<|start|>assistant:<none>")
    assert world.plan.recipe.config.model.chat_args == {"enable_thinking": False}
    world.policy.tokenizer.save_pretrained(
        tmp_path / "saved"
    )  # the model's own template, as it was
    assert load_tokenizer(tmp_path / "saved").chat_template == THINK
    for setting, said in [
        ("model.chat_args.enable_thinkin=false", "did you mean 'enable_thinking'"),
        ("model.chat_args.messages=1", "not an argument"),
        ("model.chat_args.bos_token=x", "not an argument"),
    ]:
        with pytest.raises(ModelError, match=said):
            build_world(make_plan(compose([*words, setting], zoo), zoo))
    with pytest.raises(ModelError, match="model.chat_args has no effect"):
        build_world(
            make_plan(compose([*words[:3], "model.chat_args.enable_thinking=false"], zoo), zoo)
        )


def test_a_reward_model_uses_the_arguments_that_it_was_trained_with(tmp_path):
    from helpers.reward_models import save_reward_model

    folder = save_reward_model(tmp_path / "r")
    file = folder / "tokenizer_config.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"chat_template": THINK}))
    (folder / "report.json").write_text(json.dumps({"chat_args": {"enable_thinking": False}}))
    tokenizer = reward_models.load(folder, "cpu")[1]
    assert tokenizer.apply_chat_template([USER], tokenize=False).endswith("<none>")


@pytest.mark.parametrize("template", DATED)
def test_a_date_does_not_change_overnight(monkeypatch, template):
    class Tomorrow(datetime):
        @classmethod
        def now(cls, *_):
            return cls(2031, 5, 4)

    form = PromptFormat(make(template=template))
    today = form.text([USER])
    monkeypatch.setattr(chat_template_utils, "datetime", Tomorrow)
    assert PromptFormat(make(template=template)).text([USER]) == today
    assert "26 Jul 2024" in today
    assert any("date" in note for note in form.examined([[USER], [SYSTEM, USER]]))
    assert not any("date" in note for note in PromptFormat(make()).examined([[USER]]))
    own = bind(make(template="{{ day if day is defined else strftime_now('%Y') }}" + CHATML),
               {"day": "Monday"})  # fmt: skip
    assert PromptFormat(own).text([USER]).startswith("Monday")
    assert not templates.prints_the_date(own)
