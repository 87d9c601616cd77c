"""Tokenizers as families of models have them: what a prompt, an answer and a response become."""

from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from helpers.tokenizers import byte_level, metaspace
from rlzoo.errors import ConversationError, RlzooError
from rlzoo.lm.prompts import PromptFormat, encode
from rlzoo.mdp.rules import continued, decode_tokens, token_texts
from rlzoo.mdp.turns import Conversation, Turns
from rlzoo.plugin.protocols import Abilities
from rlzoo_lab.supervised import reward_models, sft

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content }}<|im_end|>|{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant|{% endif %}"
)


def llama2(scheme="first"):
    """Letters and the space's sign; a space before the first word, as non-legacy Llama 2."""
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    letters = [*"▁abcdefghijklmnopqrstuvwxyz:|"]
    tokenizer = metaspace([*special, *letters], scheme=scheme, unk_token="<unk>")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        pad_token="</s>", additional_special_tokens=special[3:], chat_template=CHATML,
    )  # fmt: skip


def gpt2(special="<|endoftext|>", *, bos=False):
    """Bytes; one token is BOS, EOS and the unknown one. bos: it is put before a text (OPT)."""
    tokenizer = byte_level([special])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{special} $A", special_tokens=[(special, 0)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special, eos_token=special, unk_token=special,
        pad_token=special,
    )  # fmt: skip


def words():
    """Words that are known, all others not: and the unknown token is EOS and BOS."""
    tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "a": 1, "b": 2}, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="</s>", eos_token="</s>", unk_token="</s>",
        pad_token="</s>",
    )  # fmt: skip


def answer_ids(tokenizer, answer, *, chat=False, after_eos=False):
    """What a conversation's environment says, as tokens."""
    rules = Turns(
        SimpleNamespace(abilities=Abilities(), task_name="talk"),
        tokenizer,
        [tokenizer.eos_token_id],
    )
    row = Conversation({"prompts": "ab:"}, 99, chat)
    return rules._observation(row, answer, after_eos)


# ---------------------------------------------------------------- a space before what comes first


def test_an_answer_has_the_tokens_that_the_template_gives_it():
    tokenizer = llama2()
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "ab"},
        {"role": "user", "content": "cd"},
    ]
    whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    before = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True)["input_ids"]
    said = [*before, *continued(tokenizer, "ab"), *answer_ids(tokenizer, "cd", chat=True)]
    assert said == list(whole)


def test_an_answer_of_text_follows_at_once():
    tokenizer = llama2()
    plain = tokenizer("ab:", add_special_tokens=False)["input_ids"]
    ids = answer_ids(tokenizer, "cd")
    assert tokenizer.convert_ids_to_tokens(ids) == ["c", "d"]
    assert plain + ids == tokenizer("ab:cd", add_special_tokens=False)["input_ids"]


def test_a_demonstration_and_a_reward_model_read_the_response_as_it_follows(tmp_path, monkeypatch):
    tokenizer = llama2()
    tokenizer.chat_template = None
    prompt = tokenizer("ab:")["input_ids"]
    response = tokenizer.convert_tokens_to_ids(["c", "d", "</s>"])
    assert reward_models.encode(tokenizer, "ab:", "cd") == prompt + response
    assert sft.encode(PromptFormat(tokenizer), "ab:", "cd") == (prompt, response)


def prepended():
    """As `llama2`, of which the normalizer adds the space (Mistral 7B 0.1, TinyLlama)."""
    tokenizer = llama2("never")
    core = tokenizer.backend_tokenizer
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    core.pre_tokenizer = pre_tokenizers.Split("▁▁▁▁", "isolated")
    return tokenizer


def prefixed():
    """As `gpt2`, with a space before a text (`add_prefix_space`)."""
    tokenizer = gpt2()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer", [llama2("always"), llama2("never"), prepended(), prefixed()],
    ids=["always", "never", "normalizer", "bytes"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["cd", " cd", "cd ab", ""])
def test_a_text_after_a_text_gets_no_space_and_after_a_special_token_what_it_has(tokenizer, text):
    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    eos = tokenizer.eos_token_id
    assert ids("ab:") + continued(tokenizer, text, ids("ab:")[-1]) == ids(f"ab:{text}")
    assert [eos, *continued(tokenizer, text, eos)] == ids(tokenizer.eos_token + text)


def test_an_eos_that_takes_the_space_after_it_is_not_put_before_a_text():
    from tokenizers import AddedToken

    tokenizer = gpt2()
    tokenizer.add_special_tokens({"eos_token": AddedToken("<end>", rstrip=True, special=True)})
    assert tokenizer.decode(continued(tokenizer, " a")) == " a"


@pytest.mark.parametrize("tokenizer", [llama2(), llama2("always"), prepended(), prefixed()])
@pytest.mark.parametrize("gap", ["", " "])
def test_a_demonstration_has_the_space_that_the_template_writes(tokenizer, gap):
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ ':' + m.content + ':' }}{% else %}"
        f"{{{{ '{gap}' + m.content + eos_token }}}}{{% endif %}}{{% endfor %}}"
    )
    prompt, answer = {"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}
    whole = tokenizer.apply_chat_template([prompt, answer])["input_ids"]
    before, after = sft.encode(PromptFormat(tokenizer), [prompt], "cd")
    assert before + after == list(whole)


# ---------------------------------------------------------------- one token for all


@pytest.mark.parametrize("tokenizer", [gpt2("</s>", bos=True), gpt2()], ids=["opt", "gpt2"])
def test_bos_that_is_the_unknown_token_as_well_is_known(tokenizer):
    assert tokenizer.decode(encode(tokenizer, "the é")).endswith("the é")
    mark = tokenizer.eos_token
    ids = encode(tokenizer, f"one{mark}two", add_special_tokens=False)
    assert ids.count(tokenizer.eos_token_id) == 1
    assert answer_ids(tokenizer, f"{mark}two")[0] == tokenizer.eos_token_id


def test_a_history_of_turns_may_hold_the_end_of_text():
    tokenizer = gpt2()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    ids = PromptFormat(tokenizer).encode([{"role": "user", "content": "hi"}])
    assert tokenizer.decode(ids) == "hi<|endoftext|>>"


def test_what_is_unknown_is_still_named():
    tokenizer = words()
    assert encode(tokenizer, "a</s>b") == [1, 0, 2]
    with pytest.raises(RlzooError, match="the tokenizer has no token for 'c'"):
        encode(tokenizer, "a</s>b c")
    with pytest.raises(ConversationError, match="no token for 'c' in the answer"):
        answer_ids(tokenizer, "a c")


def stripping():
    """A few pieces, decoded as Llama 2's: the first space of a text is taken off."""
    vocabulary = {t: i for i, t in enumerate(["<unk>", "</s>", "▁", "l", "o", "lo", "▁lo"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("l", "o"), ("▁", "lo")], unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )


@pytest.mark.parametrize("make", [stripping, llama2])
def test_a_token_keeps_the_space_that_it_begins_with(make):
    tokenizer = make()
    pieces = ["▁", "▁lo", "lo"] if make is stripping else ["▁", "l", "o"]
    ids = tokenizer.convert_tokens_to_ids(pieces)
    shown = token_texts(tokenizer, ids)
    assert [shown[i] for i in ids] == [piece.replace("▁", "␣") for piece in pieces]
    columns = {"response_ids": torch.tensor([ids]), "response_mask": torch.ones(1, 3)}
    (texts,) = decode_tokens(tokenizer, columns, [tokenizer.eos_token_id])
    assert texts == [piece.replace("▁", " ") for piece in pieces]
