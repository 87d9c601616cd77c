"""Ids without a token, and tokens without a text, are visible in every text."""

from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from helpers import tokenizers
from rlzoo.mdp.rules import decode, decode_tokens, decoded, token_name, token_texts
from rlzoo.mdp.turns import Conversation, Turns, first_stop
from rlzoo.plugin.protocols import Abilities

SPECIAL = ["<eos>", "<pad>"]


def byte_level():
    return tokenizers.byte_level(SPECIAL)


def metaspace():
    letters = ["▁", *"0123456789abcdefghijklmnopqrstuvwxyz<>/_-", "▁a"]
    return tokenizers.metaspace([*SPECIAL, *letters], [("▁", "a")])


def byte_fallback():
    """As Llama 2: bytes by name, and the decoder takes a space off the beginning."""
    pieces = [*SPECIAL, *(f"<0x{i:02X}>" for i in range(256)), "▁", *"0123456789abcdefghijk"]
    core = Tokenizer(models.BPE({t: i for i, t in enumerate(pieces)}, [], byte_fallback=True))
    core.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return core


@pytest.fixture(params=[byte_level, metaspace, byte_fallback], ids=lambda f: f.__name__)
def tokenizer(request):
    return PreTrainedTokenizerFast(
        tokenizer_object=request.param(), eos_token="<eos>", pad_token="<pad>"
    )


def ids_of(tokenizer, text):
    space = tokenizer.convert_tokens_to_ids("▁")
    named = {" ": 2 if space is None else space}
    return [named.get(c, tokenizer.convert_tokens_to_ids(c)) for c in text]


def columns(ids):
    one = torch.ones(1, len(ids))
    return {
        "response_ids": torch.tensor([ids]), "response_attention": one, "response_mask": one
    }  # fmt: skip


@pytest.mark.parametrize("beyond", [0, 200, 151_000])
def test_they_are_shown_where_they_are(tokenizer, beyond):
    odd = len(tokenizer) + beyond
    four, two = ids_of(tokenizer, "4"), ids_of(tokenizer, "2")
    for ids, text in [
        ([*four, odd, *two], f"4<|{odd}|>2"),
        ([odd, *four, *two], f"<|{odd}|>42"),
        ([*four, *two, odd, odd], f"42<|{odd}|><|{odd}|>"),
        ([odd], f"<|{odd}|>"),
        ([*four, *two], "42"),
        ([], ""),
    ]:
        assert decoded(tokenizer, [ids]) == [text]
        assert decode(tokenizer, columns([*ids, 0]), [0]) == [text]
        said = decode_tokens(tokenizer, columns([*ids, 0]), [0])
        assert said == [[*map(token_name_or_text(tokenizer), ids), ""]]
    assert decode(tokenizer, columns([*four, odd]), [odd]) == ["4"]  # it ends the response
    assert token_texts(tokenizer, [odd, *four]) == {odd: f"<|{odd}|>", four[0]: "4"}


def token_name_or_text(tokenizer):
    return lambda i: token_name(tokenizer, i) if i >= len(tokenizer) else tokenizer.decode([i])


@pytest.mark.parametrize("tokenizer", [metaspace, byte_fallback], indirect=True)
def test_a_space_after_one_stays(tokenizer):
    odd = len(tokenizer) + 3
    a, space, b = ids_of(tokenizer, "a b")
    assert decoded(tokenizer, [[a, odd, space, b]]) == [f"a<|{odd}|> b"]
    assert decoded(tokenizer, [[a, space, odd, b]]) == [f"a <|{odd}|>b"]


def test_a_token_without_a_text_is_shown_by_its_name():
    """Decoders drop some: here what they take for a control token."""
    core = Tokenizer(models.WordLevel({"<eos>": 0, "4": 1, "2": 2, "[x]": 3, "": 4}, unk_token=""))
    core.decoder = decoders.Sequence([decoders.Replace("[x]", ""), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>")
    assert tokenizer.decode([1, 3, 2]) == "42"
    assert decoded(tokenizer, [[1, 3, 2], [1, 4, 2]]) == ["4[x]2", "4<|4|>2"]


@pytest.mark.parametrize("error", [IndexError, KeyError, OverflowError])
def test_a_tokenizer_may_raise_for_them(error):
    class Digits:
        def convert_ids_to_tokens(self, i):
            if i > 9:
                raise error(i)
            return str(i)

        def decode(self, ids, **_):
            return "".join(str(i) for i in ids if i <= 9)

    assert decoded(Digits(), [[4, 300, 2]]) == ["4<|300|>2"]


@pytest.mark.parametrize("tokenizer", [metaspace], indirect=True)
def test_a_stop_is_not_read_across_one(tokenizer):
    x, word, b = tokenizer.convert_tokens_to_ids(["x", "▁a", "b"])
    assert first_stop(tokenizer, [x, word, b], 1, ["x ab"]) == 3
    assert first_stop(tokenizer, [x, word, len(tokenizer), b], 1, ["x ab"]) is None


def test_a_conversation_shows_them(tokenizer):
    odd = len(tokenizer) + 7
    about = SimpleNamespace(abilities=Abilities(), task_name="talk")
    rules = Turns(about, tokenizer, [0, odd + 1])
    before, after = ids_of(tokenizer, "ab"), ids_of(tokenizer, "cd")
    assert rules.text([*before, odd, *after, 0]) == f"ab<|{odd}|>cd"
    row = Conversation({"prompts": "-"}, 99, chat=True)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"
    assert rules._rendered(row, "cd", after_eos=True) == "cd<eos>"  # odd + 1 has no token
