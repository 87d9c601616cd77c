"""Prompts become tokens."""

import pytest

from helpers.reward_models import make_tokenizer
from helpers.rows import USER
from rlzoo.errors import RlzooError
from rlzoo.lm import prompts
from rlzoo.lm.prompts import PromptFormat


def test_the_one_that_cannot_be_read_is_named():
    with pytest.raises(RlzooError, match="prompt '1€': the tokenizer has no token for '€'"):
        PromptFormat(make_tokenizer()).encode("1€")
    with pytest.raises(RlzooError, match="prompt '' is empty"):
        PromptFormat(make_tokenizer()).encode("")


@pytest.mark.parametrize("text", ["\udce4\udcbd\udca0", "a\ud800", "\udfff你"])
def test_a_text_that_is_no_unicode_is_named(text):
    with pytest.raises(RlzooError) as said:
        prompts.encode(make_tokenizer(), text)
    assert repr(text) in str(said.value)


def test_text_gets_the_special_tokens_and_what_a_template_wrote_does_not(monkeypatch):
    asked = {}

    def seen(tokenizer, text, *, add_special_tokens):
        asked[add_special_tokens] = text

    monkeypatch.setattr(prompts, "encode", seen)
    form = PromptFormat(make_tokenizer(chat=True))
    form.encode("1+2=")
    form.encode([USER])
    assert asked == {True: "1+2=", False: form.text([USER])}
