"""Reward models of several families, held against transformers' own reading of two texts."""

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from helpers.architectures import save_model
from rlzoo.errors import ModelError
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.supervised import reward as trainer
from rlzoo_lab.supervised.reward_models import RewardModel, encode, longest

LETTERS = "abcdefghijklmnopqrstuvwxyz:"
PROMPTS, RESPONSES = ["ab:", "abcdef:", "q:"], ["cd", "e", "xyzxyz"]
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "num_labels": 1,
}  # fmt: skip


def letters(special, unknown):
    vocabulary = {token: i for i, token in enumerate([*special, *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    return tokenizer


def bert():
    tokenizer = letters(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[UNK]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    config = BertConfig(**SMALL, vocab_size=len(tokenizer), max_position_embeddings=12)
    return BertForSequenceClassification, config, tokenizer


def roberta():
    tokenizer = letters(["<s>", "<pad>", "</s>", "<unk>"], "<unk>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", cls_token="<s>",
        bos_token="<s>", sep_token="</s>", eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    config = RobertaConfig(
        **SMALL, vocab_size=len(tokenizer), max_position_embeddings=14, pad_token_id=1,
        type_vocab_size=1,
    )  # fmt: skip
    return RobertaForSequenceClassification, config, tokenizer


@pytest.fixture(params=[bert, roberta], ids=["bert", "roberta"])
def family(request, tmp_path):
    """(path, model, tokenizer): a random reward model, and where it is saved."""
    kind, config, tokenizer = request.param()
    torch.manual_seed(0)
    model = kind(config).eval()
    for weight in model.parameters():
        weight.data.normal_(0, 0.3)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path, model, tokenizer


def scores(path, prompts, responses, **options):
    messages = [[{"role": "user", "content": p}] for p in prompts]
    ended = [True] * len(prompts)
    return RewardModel(str(path), "cpu").scores(prompts, messages, responses, ended, **options)


def test_a_pair_is_read_as_transformers_reads_it(family):
    path, model, tokenizer = family
    plain = [tokenizer(p, r, return_tensors="pt") for p, r in zip(PROMPTS, RESPONSES, strict=True)]
    with torch.no_grad():
        expected = torch.stack([model(**given).logits[0, 0] for given in plain])
    for batch in (1, 2, 64):
        found = scores(path, PROMPTS, RESPONSES, batch=batch)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_long_pair_loses_the_beginning_of_its_prompt_and_no_special_token(family):
    path, model, tokenizer = family
    limit = longest(model, None)
    assert limit == 12  # RoBERTa's 14 positions are 12 tokens
    special = tokenizer.num_special_tokens_to_add(pair=True)
    left = limit - special - 2
    prompt = "abcdefghijklmnopqrstuvwxyz"
    ids = encode(tokenizer, prompt, "cd", limit=limit)
    assert ids == tokenizer(prompt[-left:], "cd")["input_ids"]
    ids = encode(tokenizer, "ab", prompt, limit=limit)
    assert ids == tokenizer("", prompt[-left - 2 :])["input_ids"]
    torch.testing.assert_close(
        scores(path, [prompt], ["cd"]), scores(path, [prompt[-left:]], ["cd"])
    )
    assert len(encode(tokenizer, prompt, "cd", limit=9)) == 9


def test_bos_is_not_cut_off():
    tokenizer = roberta()[2]
    tokenizer.sep_token = tokenizer.cls_token = None
    ids = encode(tokenizer, "abcdef", "cd", limit=5)
    assert tokenizer.convert_ids_to_tokens(ids) == ["<s>", "f", "c", "d", "</s>"]
    assert encode(tokenizer, "abcdef", "cd", limit=99) == encode(tokenizer, "abcdef", "cd")


@pytest.mark.landing
def test_training_gives_the_model_the_same_rows(family, monkeypatch):
    import argparse
    import json

    path, _, tokenizer = family
    data = path / "pairs.jsonl"
    rows = [{"prompt": f"{c}:", "chosen": "ab", "rejected": "b"} for c in "abcdefgh"]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen, plain = [], trainer.fit.fit

    def fit(model, rows, collate, loss, *rest):
        seen.append(collate(list(rows)))
        return plain(model, rows, collate, loss, *rest)

    monkeypatch.setattr(trainer.fit, "fit", fit)
    parser = argparse.ArgumentParser()
    trainer.add_arguments(parser)
    words = [data, "--model", path, "--out", path / "out", "--device", "cpu"]
    report = trainer.run(parser.parse_args([str(word) for word in words])).document
    assert 0 <= report["held_out"]["accuracy"] <= 1
    prompts = [r["prompt"] for r in rows]
    assert set(seen[0]) == set(tokenizer.model_input_names)
    expected = tokenizer(prompts[:1], ["ab"], padding="max_length", max_length=12)
    named = {n: x.tolist() for n, x in seen[0].items()}
    at = next(i for i, ids in enumerate(named["input_ids"]) if ids[1] == expected.input_ids[0][1])
    width = len(named["input_ids"][0])
    for name, values in named.items():
        assert values[at] == expected[name][0][:width]


# ---------------------------------------------------------------- a critic from a reward model


def test_a_critic_starts_from_a_reward_model_with_a_padding_token_of_its_own(zoo, tmp_path):
    from transformers import AutoTokenizer

    policy = save_model(tmp_path / "policy", "llama")
    tokenizer = AutoTokenizer.from_pretrained(policy)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(policy)
    model, theirs = trainer.new(policy)
    assert theirs.pad_token == "<|pad|>"
    model.save_pretrained(tmp_path / "reward")
    theirs.save_pretrained(tmp_path / "reward")
    words = [f"model.path={policy}", f"critic.init={tmp_path}/reward", "device=cpu"]
    plan = make_plan(compose(["recipe=ppo_gae", *words], zoo), zoo)
    critic = build_world(plan).engine.critic
    assert torch.equal(critic.trunk.embed_tokens.weight, model.model.embed_tokens.weight)


def test_a_critic_of_another_tokenizer_is_still_refused(zoo, tmp_path, golden):
    policy = save_model(tmp_path / "policy", "llama")
    vocabulary = letters(["<pad>", "<eos>", "<unk>"], "<unk>")
    other = PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )
    config = LlamaConfig(**SMALL, vocab_size=99, pad_token_id=0)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "reward")
    other.save_pretrained(tmp_path / "reward")
    words = [f"model.path={policy}", f"critic.init={tmp_path}/reward", "device=cpu"]
    plan = make_plan(compose(["recipe=ppo_gae", *words], zoo), zoo)
    with golden.refuses(ModelError):
        build_world(plan)
