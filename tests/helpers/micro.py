"""A random character model of some 5,000 parameters: every run with it takes a second."""

import json
import shutil

MICRO = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def make_model(folder):
    """The same weights each time, as a transformers folder; the folder."""
    import torch

    from rlzoo_lab.supervised.tiny import build_model, build_tokenizer, save

    tokenizer = build_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model(MICRO, tokenizer)
    save(model, tokenizer, folder)
    return folder


def words_of(folder):
    """Overrides that make a run of any recipe take a second."""
    return [
        f"model.path={folder}",
        "rollout.prompts=4",
        "rollout.samples=4",
        "rollout.max_new_tokens=5",
        "train.steps=3",
        "train.minibatches=2",
        "eval.samples=8",
        "checkpoint.every=1",
        "device=cpu",
    ]


def with_other_tokenizer(folder, place):
    """A copy of a model's folder at `place`, whose tokenizer reads `a` as `b`; the copy."""
    shutil.copytree(folder, place, dirs_exist_ok=True)
    told = json.loads((place / "tokenizer.json").read_text())
    vocabulary = told["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (place / "tokenizer.json").write_text(json.dumps(told))
    return place
