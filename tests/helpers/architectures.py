"""Small random models of several architectures, on disk as transformers writes them."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
)

from helpers.grids import grid
from helpers.rewards_for_tests import LETTERS
from rlzoo_lab.supervised.tiny import build_tokenizer

COMMON = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,  # far from uniform, so that a slip shows
}
# Windows shorter than the rows of the tests, so that they matter.
CONFIGS = {
    "gpt2": lambda: GPT2Config(
        n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.4, **SPECIAL
    ),
    "llama": lambda: LlamaConfig(**COMMON, **SPECIAL),
    "qwen2": lambda: Qwen2Config(
        **COMMON, use_sliding_window=True, sliding_window=6, max_window_layers=1, **SPECIAL
    ),
    "mistral": lambda: MistralConfig(**COMMON, sliding_window=6, **SPECIAL),
    "gemma": lambda: GemmaConfig(**COMMON, **SPECIAL),
    "gemma2": lambda: Gemma2Config(
        **COMMON, sliding_window=6, final_logit_softcapping=4.0, query_pre_attn_scalar=4, **SPECIAL
    ),
    "gemma3": lambda: Gemma3TextConfig(
        **COMMON, sliding_window=6, query_pre_attn_scalar=4, **SPECIAL
    ),
}
# Positions that are learned, windows in some layers, and windows with norms of heads; the other
# families are as these, and stand before a landing.
FEW = ("gpt2", "qwen2", "gemma3")
EACH = pytest.mark.parametrize("name", grid(CONFIGS, always=FEW.__contains__))
NEAR = {"atol": 1e-5, "rtol": 0}
ENDS = list(range(1, 16))  # so many tokens that end a response that rows end at different times
SMALL = [
    *("device=cpu", "task=addition_mixed", "rollout.prompts=4", "rollout.samples=4"),
    *("rollout.max_new_tokens=6", "train.minibatches=2", "eval.samples=4", *LETTERS),
]
LORA = ["model.lora.rank=2", "model.lora.alpha=8"]
TOKENIZER = build_tokenizer()
SPECIAL = {
    "vocab_size": len(TOKENIZER),
    "pad_token_id": TOKENIZER.pad_token_id,
    "eos_token_id": TOKENIZER.eos_token_id,
    "bos_token_id": None,
}


def save_model(folder, name, seed=0, **changes):
    """A random model of architecture `name`, its tokenizer beside it; returns the folder."""
    config = CONFIGS[name]()
    for key, value in changes.items():
        setattr(config, key, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


def columns_of(prompts, responses, *, left=0, right=0, groups=None, holes=0.0, seed=0):
    """A batch's columns of token lists. left, right: padding more than is needed. holes: the share
    of response tokens that the policy did not choose."""
    p = max(map(len, prompts)) + left
    t = max(map(len, responses)) + right
    generator = torch.Generator().manual_seed(seed)
    pad = TOKENIZER.pad_token_id
    attention = torch.tensor([[1.0] * len(r) + [0.0] * (t - len(r)) for r in responses])
    chosen = torch.rand(attention.shape, generator=generator) >= holes
    columns = {
        "prompt_ids": torch.tensor([[pad] * (p - len(r)) + r for r in prompts]),
        "prompt_mask": torch.tensor([[0.0] * (p - len(r)) + [1.0] * len(r) for r in prompts]),
        "response_ids": torch.tensor([r + [pad] * (t - len(r)) for r in responses]),
        "response_attention": attention,
        "response_mask": attention * chosen,
    }
    return columns if groups is None else columns | {"group_ids": torch.tensor(groups)}


def ragged(rows, *, prompt=(1, 12), response=(1, 9), each=1, seed=0):
    """(prompts, responses, group of each row): random tokens, `each` rows to a prompt."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(low, high):
        n = int(torch.randint(low, high + 1, (), generator=generator))
        return torch.randint(3, len(TOKENIZER), (n,), generator=generator).tolist()

    asked = [tokens(*prompt) for _ in range(rows // each)]
    groups = [i for i in range(rows // each) for _ in range(each)]
    return [asked[i] for i in groups], [tokens(*response) for _ in groups], groups
