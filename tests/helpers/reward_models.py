"""Small random reward models, as transformers writes them, whole and spoiled."""

import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from rlzoo_lab.supervised.tiny import EOS, build_tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}|{{ m.content }}"
    "{% if m.role == 'assistant' %}" + EOS + "{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}a|{% endif %}"
)


def make_tokenizer(*, pad="own", chat=False):
    tokenizer = build_tokenizer()
    if pad == "eos":
        tokenizer.pad_token = tokenizer.eos_token
    if chat:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(architecture="llama", *, pad="own", labels=1):
    tokenizer = make_tokenizer(pad=pad)
    shared = {"vocab_size": len(tokenizer), "num_labels": labels}
    torch.manual_seed(0)
    if architecture == "gpt2":
        config = GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=48, **shared)
        model = GPT2ForSequenceClassification(config)
    elif architecture == "bert":
        size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = BertConfig(**size, intermediate_size=16, **shared)
        model = BertForSequenceClassification(config)
    else:
        size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = LlamaConfig(**size, intermediate_size=16, **shared)
        model = LlamaForSequenceClassification(config)
    model.config.pad_token_id = tokenizer.pad_token_id
    for weight in model.parameters():  # random heads are small: differences must show
        weight.data.normal_(0, 0.3)
    return model.eval()


def save_reward_model(place, **changes):
    """One as `rlzoo model reward` leaves it; the folder."""
    make_model(**changes).save_pretrained(place)
    make_tokenizer().save_pretrained(place)
    return place


def spoiled(tmp_path, how):
    """A reward model's folder with one thing wrong."""
    place = tmp_path / "judge"
    if how == "causal":
        AutoModelForCausalLM.from_config(LlamaConfig(
            vocab_size=99, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16)).save_pretrained(place)  # fmt: skip
        make_tokenizer().save_pretrained(place)
    elif how in ("labels", "three labels"):
        save_reward_model(place, labels=2 if how == "labels" else 3)
    elif how == "no tokenizer":
        make_model().save_pretrained(place)
    elif how == "no config":
        place.mkdir()
    elif how == "misspelled":
        place.mkdir()
        return tmp_path / "jugde"
    return place
