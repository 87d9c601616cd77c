"""What a run will hold in memory, from its recipe and a model's sizes: nothing is loaded.

The sizes are those of a `config.json`: read where the model is at hand, else the recipe's
`model.shape`. Parameter counts are exact for the families below; bytes are an estimate.
No torch here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo.lm.room import activations
from rlzoo.recipe.files import config_dirs
from rlzoo.recipe.plan import Plan
from rlzoo.show.numbers import count

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

# What each family adds to a Llama's layers: biases of q, k and v; norms of q and k; norms in all.
QKV_BIAS = ("qwen2",)

HEAD_NORMS = ("qwen3", "gemma3_text")

FOUR_NORMS = ("gemma2", "gemma3_text")

EXACT = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "gpt2")


@dataclass(frozen=True)
class Sizes:
    """A causal LM's. `inner`: of the feed-forward layers; `positions`: learned ones, or 0."""

    family: str
    layers: int
    hidden: int
    inner: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    positions: int = 0
    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def exact(self) -> bool:
        """Whether `parameters` is more than an estimate."""
        return self.family in EXACT

    @property
    def linear(self) -> list[tuple[str, int, int]]:
        """(name, in, out) of a layer's matrices."""
        h, i = self.hidden, self.inner
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.family == "gpt2":
            return [("c_attn", h, 3 * h), ("c_proj", h, h), ("c_fc", h, i), ("c_proj", i, h)]
        attention = [("q_proj", h, q), ("k_proj", h, kv), ("v_proj", h, kv), ("o_proj", q, h)]
        return [*attention, ("gate_proj", h, i), ("up_proj", h, i), ("down_proj", i, h)]

    @property
    def trunk(self) -> int:
        """Parameters but for a head of its own."""
        h = self.hidden
        a_layer = sum(a * b for _, a, b in self.linear)
        embeddings = (self.vocabulary + self.positions) * h
        if self.family == "gpt2":  # biases everywhere, and LayerNorms with theirs
            a_layer += sum(out for *_, out in self.linear) + 4 * h
            return embeddings + self.layers * a_layer + 2 * h
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        a_layer += (4 if self.family in FOUR_NORMS else 2) * h
        a_layer += 2 * self.head_dim if self.family in HEAD_NORMS else 0
        a_layer += qkv if self.family in QKV_BIAS else 0
        a_layer += qkv + h if self.attention_bias else 0
        a_layer += 2 * self.inner + h if self.mlp_bias else 0
        return embeddings + self.layers * a_layer + h

    @property
    def head(self) -> int:
        return 0 if self.tied else self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        return self.trunk + self.head

    def adapters(self, rank: int, targets: list[str] | None) -> int:
        """Parameters of LoRA adapters on the layers `targets`; None: all linear ones but the
        head."""
        sides = [a + b for name, a, b in self.linear if targets is None or name in targets]
        return self.layers * rank * sum(sides)


def read_sizes(config: Mapping[str, Any]) -> Sizes | None:
    """From what a `config.json` says; None where it says too little."""
    said = {**config, **config.get("text_config", {})}

    def first(*names: str) -> Any:
        return next((said[n] for n in names if said.get(n) is not None), None)

    hidden, layers = first("hidden_size", "n_embd"), first("num_hidden_layers", "n_layer")
    heads, vocabulary = first("num_attention_heads", "n_head"), first("vocab_size")
    if not all(isinstance(n, int) and n > 0 for n in (hidden, layers, heads, vocabulary)):
        return None
    family = str(said.get("model_type", ""))
    return Sizes(
        family=family,
        layers=layers,
        hidden=hidden,
        inner=first("intermediate_size", "n_inner") or 4 * hidden,
        vocabulary=vocabulary,
        heads=heads,
        kv_heads=first("num_key_value_heads") or heads,
        head_dim=first("head_dim") or hidden // heads,
        tied=bool(said.get("tie_word_embeddings", True)),
        positions=first("n_positions") or 0 if family == "gpt2" else 0,
        attention_bias=bool(said.get("attention_bias")),
        mlp_bias=bool(said.get("mlp_bias")),
    )


def find_sizes(model: Any) -> tuple[Sizes | None, str]:
    """The sizes of a recipe's `model`, and where they were found: without a download."""
    file = _config_file(str(model.path)) if model.path else None
    if file is not None:
        return read_sizes(json.loads(file.read_text(encoding="utf-8"))), str(file)
    if model.shape:
        return read_sizes(model.shape), "model.shape"
    return None, ""


def _config_file(path: str) -> Path | None:
    for folder in (Path(path).expanduser(), *(d / path for d in config_dirs())):
        if (folder / "config.json").is_file():
            return folder / "config.json"
        adapter = folder / "adapter_config.json"
        if adapter.is_file():
            said = json.loads(adapter.read_text(encoding="utf-8"))
            return _config_file(str(said["base_model_name_or_path"]))
    if path.count("/") != 1 or path[0] in "./~":
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(path, "config.json")
    return Path(cached) if isinstance(cached, str) else None


@dataclass(frozen=True)
class Item:
    """Bytes of one thing; `when`: always there, or while sampling, in a pass of an update, or while
    an optimizer steps."""

    what: str
    bytes: int
    when: str
    how: str


@dataclass(frozen=True)
class Estimate:
    """An estimate of a run's memory on `device`."""

    device: str
    sizes: Sizes
    source: str
    prompt: int
    items: list[Item]

    @property
    def always(self) -> int:
        return sum(i.bytes for i in self.items if i.when == "always")

    @property
    def peak(self) -> int:
        """The most that is held at a time."""
        phases: dict[str, int] = {}
        for item in self.items:
            phases[item.when] = phases.get(item.when, 0) + item.bytes
        return phases.pop("always", 0) + max(phases.values(), default=0)

    def document(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "parameters": self.sizes.parameters,
            "parameters_exact": self.sizes.exact,
            "from": self.source,
            "prompt_tokens": self.prompt,
            "items": [vars(i) for i in self.items],
            "peak_bytes": self.peak,
        }


def estimate(plan: Plan) -> Estimate | None:
    """None where nothing is known of the model's sizes."""
    config = plan.recipe.config
    m, r = config.model, config.rollout
    sizes, source = find_sizes(m)
    if sizes is None:
        return None
    device = _device(config.device)
    stored = BYTES[m.dtype]
    prompt = _prompt_tokens(plan)
    rows = r.prompts * r.samples
    items: list[Item] = []

    def add(what: str, size: float, when: str, how: str) -> None:
        if size > 0:
            items.append(Item(what, int(size), when, how))

    def add_network(name: str, parameters: int, head: int) -> None:
        targets = None if m.lora.targets is None else list(m.lora.targets)
        adapters = sizes.adapters(m.lora.rank, targets)
        trained = adapters or parameters
        width = 4 if adapters else stored  # adapters and heads are float32
        add(f"{name}: weights", parameters * stored, "always", f"{count(parameters)} {m.dtype}")
        if adapters:
            add(f"{name}: adapters", adapters * 4, "always", f"{count(adapters)} float32")
        add(f"{name}: head", head * 4, "always", f"{count(head)} float32")
        size = trained * width + head * 4
        add(f"{name}: gradients", size, f"{name}'s update", f"{count(trained + head)} trained")
        add(f"{name}: AdamW", 2 * size, "always", "two moments of each")

    add_network("actor", sizes.parameters, 0)
    if plan.reference and not m.lora.rank:
        how = f"{count(sizes.parameters)} {m.dtype}, frozen"
        add("reference: weights", sizes.parameters * stored, "always", how)
    if plan.critic:
        wide = "value_logits" in plan.needs or "value_support" in plan.needs
        head = (sizes.hidden + 1) * (config.critic.bins if wide else 1)
        if config.critic.trunk == "own":
            add_network("critic", sizes.trunk, head)
        else:
            add("critic: head", head * 16, "always", "on the policy's trunk, with AdamW's")

    long = prompt + r.max_new_tokens
    cache = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim
    how = f"{rows} rows x {long} positions x {count(cache)} numbers"
    # Under autocast, too: rotary positions are float32, and what they touch becomes so.
    add("KV cache", rows * long * cache * stored, "sampling", how)
    add(
        "next-token logits",
        # Logits, probabilities, their sums; and sorted with their order, where they are cut off.
        rows * sizes.vocabulary * (32 if r.top_k or r.top_p < 1 else 12),
        "sampling",
        f"{rows} rows x {sizes.vocabulary:,} tokens, several times",
    )
    positions, how = _pass(config, sizes, device, long, rows)
    activated = positions * _floats(config, sizes) * stored
    add("actor: activations", activated, "actor's update", how)
    if plan.critic and config.critic.trunk == "own":
        if plan.one_update:
            add(
                "critic: activations",
                activated,
                "actor's update",
                "kept of the pass for the values",
            )
        else:
            add("critic: activations", activated, "critic's update", how)
    chunk = min(positions, _chunk(device) // sizes.vocabulary) * sizes.vocabulary
    add("logits", chunk * 12, "actor's update", "a chunk of the log-prob head, with its gradient")
    return Estimate(device, sizes, source, prompt, items)


def _floats(config: Any, sizes: Sizes) -> int:
    recompute = config.model.gradient_checkpointing
    return activations(sizes.hidden, sizes.inner, sizes.layers, grad=True, recompute=recompute)


def _device(name: str) -> str:
    if name != "auto":
        return name.partition(":")[0]
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def _pass(config: Any, sizes: Sizes, device: str, long: int, rows: int) -> tuple[int, str]:
    """Positions of an update's pass, and why so many."""
    from rlzoo.lm.room import ROOM

    t = config.train
    here = -(-rows // t.minibatches) * long
    if t.microbatch:
        return min(here, t.microbatch * long), f"train.microbatch: {t.microbatch} rows"
    if t.token_budget:
        budget, how = t.token_budget, "train.token_budget"
    else:
        floats = _floats(config, sizes) + sizes.vocabulary
        budget = ROOM.get(device, ROOM["cuda"]) // (4 * floats)
        how = "what the model's size suggests"
    budget = max(budget, long)  # a row is never cut
    return min(here, budget), f"{min(here, budget):,} positions of a pass ({how})"


def _chunk(device: str) -> int:
    from rlzoo.lm.room import CHUNK

    return CHUNK.get(device, CHUNK["cuda"])


def _prompt_tokens(plan: Plan) -> int:
    """Tokens of the longest of a few prompts, taken as a token per character where the vocabulary
    is of characters, else per three of them."""
    import torch

    sizes, _ = find_sizes(plan.recipe.config.model)
    drawn = plan.task.draw("train", 32, torch.Generator().manual_seed(0))
    texts = [p if isinstance(p, str) else "".join(m["content"] for m in p) for p, *_ in drawn]
    per_token = 1 if sizes and sizes.vocabulary < 1000 else 3
    return max(-(-len(text) // per_token) for text in texts)
