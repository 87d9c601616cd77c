"""Prompts become tokens together as they do one by one."""

import pytest

from helpers.reward_models import make_tokenizer
from helpers.rows import USER
from rlzoo.errors import RlzooError
from rlzoo.lm import prompts
from rlzoo.lm.prompts import PromptFormat


def test_together_they_are_what_each_is_alone():
    """Text and messages in any order."""
    tokenizer = make_tokenizer(chat=True)
    asked = ["1+2=", [USER], "17+25=", "1+2=", [USER, USER]]
    alone = [PromptFormat(tokenizer).encode(prompt) for prompt in asked]
    assert len({*map(tuple, alone)}) == 4
    assert PromptFormat(tokenizer).encode_each(iter(asked)) == alone


def test_the_one_that_cannot_be_read_is_named():
    with pytest.raises(RlzooError, match="prompt '1€': the tokenizer has no token for '€'"):
        PromptFormat(make_tokenizer()).encode_each(["1+2=", "1€"])
    with pytest.raises(RlzooError, match="prompt '' is empty"):
        PromptFormat(make_tokenizer()).encode_each(["1+2=", ""])


@pytest.mark.parametrize("text", ["\udce4\udcbd\udca0", "a\ud800", "\udfff你"])
def test_a_text_that_is_no_unicode_is_named(text):
    with pytest.raises(RlzooError) as said:
        prompts.encode_each(make_tokenizer(), ["a", text])
    assert repr(text) in str(said.value)


def test_text_gets_the_special_tokens_and_what_a_template_wrote_does_not(monkeypatch):
    asked = {}

    def seen(tokenizer, texts, *, add_special_tokens):
        asked[add_special_tokens] = texts
        return [[1] for _ in texts]

    monkeypatch.setattr(prompts, "encode_each", seen)
    form = PromptFormat(make_tokenizer(chat=True))
    form.encode_each(["1+2=", [USER]])
    assert asked == {True: ["1+2="], False: [form.text([USER])]}
