"""Previews a run for `rlzoo show`: prompt format, memory and duration.
Nothing is loaded; `show` finds `preview` by the entry point of that name.

The sizes come from a `config.json` if the model is stored here, otherwise from the recipe's
`model.shape`. Parameter counts are exact; byte counts are estimates.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from rlzoo.accel.passes import USUAL, activations, room
from rlzoo.accel.sampling_copy import sampling_dtypes
from rlzoo.errors import typed_path
from rlzoo.lm.prompts import drawn, how_read
from rlzoo.mdp.rules import draw_examples
from rlzoo.recipe.files import config_dirs
from rlzoo.recipe.keys import Config
from rlzoo.recipe.plan import Plan
from rlzoo_lab.duration import Duration, duration
from rlzoo_lab.view.numbers import count, show_bytes

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

HEADS = ("lm_head", "embed_out")  # what transformers calls the layer that gives the logits


@dataclass(frozen=True)
class Sizes:
    """A causal LM's.

    inner: width of the feed-forward layers
    shapes: of its parameters, by name
    exact: whether `shapes` are the model's own, not those of a similar model
    """

    layers: int
    hidden: int
    inner: int
    vocabulary: int
    kv_heads: int
    head_dim: int
    shapes: Mapping[str, Sequence[int]]
    exact: bool

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.shapes.values()))

    @property
    def trunk(self) -> int:
        """Parameters without a separate head."""
        return sum(prod(s) for name, s in self.shapes.items() if name.split(".")[0] not in HEADS)

    def adapters(self, rank: int, targets: list[str] | None) -> int:
        """Parameters of LoRA adapters on the layers `targets`; None: all linear layers except the
        head."""
        sides = 0
        for name, shape in self.shapes.items():
            *path, module, _ = ["", *name.split(".")]
            linear = len(shape) == 2 and any(part.isdigit() for part in path)
            if linear and (targets is None or module in targets):
                sides += sum(shape)
        return rank * sides


@dataclass(frozen=True)
class Preview:
    """prompts: a line on the prompt format; None without a chat template. memory, time: None if
    the model's sizes are unknown. code: a line if the model needs its own code."""

    prompts: str | None
    memory: "Estimate | None"
    time: Duration | None = None
    code: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "memory": self.memory and self.memory.document(),
            "time": self.time and vars(self.time),
            "code": self.code,
        }

    def view(self, width: int) -> list[Any]:
        """The output of `show`: lines and, if the terminal has `width` columns, a table."""
        said: list[Any] = [line for line in (self.code, self.prompts) if line]
        if self.memory:
            last = [Text(self.time.line())] if self.time else []
            return [*said, *self.memory.view(width), *last]
        text = "memory: unknown, because there is neither a config.json nor a model.shape"
        return [*said, Text(text)]


def preview(plan: Plan) -> Preview:
    """The information about a run that is available before it starts."""
    held = estimate(plan)
    lasts = duration(plan, held.sizes, held.prompt, held.device) if held else None
    return Preview(_prompts_read(plan), held, lasts, _own_code(plan.recipe.config.model))


def _own_code(model: Any) -> str | None:
    file = config_file(str(model.path)) if model.path else None
    said = json.loads(file.read_text(encoding="utf-8")) if file else {}
    if "auto_map" not in said or model.trust_remote_code:
        return None
    from transformers import CONFIG_MAPPING

    if said.get("model_type") in CONFIG_MAPPING:
        return None
    return f"{file}: its own code is needed, which runs only with model.trust_remote_code=true"


def _prompts_read(plan: Plan) -> str | None:
    model = plan.recipe.config.model
    file = config_file(str(model.path)) if model.path else None
    names = ("chat_template.jinja", "tokenizer_config.json")
    found = [file.parent / name for name in names] if file else []
    known = any(p.is_file() and (p.suffix == ".jinja" or "chat_template" in p.read_text("utf-8"))
                for p in found)  # fmt: skip
    if not (known or model.chat == "always"):
        return None
    return how_read(model.chat, drawn(plan.task, plan.task_name, "train"))


def read_sizes(config: Mapping[str, Any], folder: Path | None = None) -> Sizes | None:
    """Reads a `config.json` and the weights next to it; None if it has too few entries."""
    said = {**config, **config.get("text_config", {})}
    several = said.pop("text_config", None) is not None

    def first(*names: str) -> Any:
        return next((said[n] for n in names if said.get(n) is not None), None)

    hidden, layers = first("hidden_size", "n_embd"), first("num_hidden_layers", "n_layer")
    heads, vocabulary = first("num_attention_heads", "n_head"), first("vocab_size")
    inner = first("intermediate_size", "n_inner") or 4 * (hidden or 0)  # some: one for each layer
    if not all(isinstance(n, int) and n > 0 for n in (hidden, layers, heads, vocabulary)):
        return None
    file = folder / "model.safetensors" if folder and not several else None
    shapes, exact = (_stored(file, said), True) if file and file.is_file() else _made(said)
    return Sizes(
        layers=layers,
        hidden=hidden,
        inner=max(inner) if isinstance(inner, list) else inner,
        vocabulary=vocabulary,
        kv_heads=first("num_key_value_heads") or heads,
        head_dim=first("head_dim") or hidden // heads,
        shapes=shapes,
        exact=exact,
    )


def _stored(file: Path, config: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Shapes as the head of the weights' file lists them: in no time."""
    with file.open("rb") as stream:
        head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    head.pop("__metadata__", None)
    tied = config.get("tie_word_embeddings")
    return {
        name: entry["shape"]
        for name, entry in head.items()
        # A tied head may be stored all the same, and GPT-2's masks are.
        if not (tied and name.split(".")[0] in HEADS) and len(entry["shape"]) < 4
    }


def _made(config: Mapping[str, Any]) -> tuple[dict[str, Sequence[int]], bool]:
    """(shapes, whether they are exact): those of the model that transformers makes from a config,
    on the meta device; a Llama of these sizes if the family is unknown. The import takes 3 s."""
    from transformers import AutoConfig, AutoModelForCausalLM

    exact = True
    with torch.device("meta"):
        try:
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
        except ValueError:
            llama = AutoConfig.for_model(**{**config, "model_type": "llama"})
            model, exact = AutoModelForCausalLM.from_config(llama), False
    return {name: tuple(x.shape) for name, x in model.named_parameters()}, exact


def find_sizes(model: Any) -> tuple[Sizes | None, str]:
    """The sizes of a recipe's `model` or `teacher`, and where they were found: without a
    download."""
    file = config_file(str(model["path"])) if model["path"] else None
    if file is not None:
        return read_sizes(json.loads(file.read_text(encoding="utf-8")), file.parent), str(file)
    if model.get("shape"):
        from omegaconf import OmegaConf

        shape: Any = OmegaConf.to_container(model.shape)
        return read_sizes(shape), "model.shape"
    return None, ""


def config_file(path: str) -> Path | None:
    """The config.json of a folder or a hub id, if it is stored here; for an adapter, that of its
    base."""
    for folder in (typed_path(path), *(d / path for d in config_dirs())):
        if (folder / "config.json").is_file():
            return folder / "config.json"
        adapter = folder / "adapter_config.json"
        if adapter.is_file():
            said = json.loads(adapter.read_text(encoding="utf-8"))
            return config_file(str(said["base_model_name_or_path"]))
    if path.count("/") != 1 or path[0] in "./~":
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(path, "config.json")
    return Path(cached) if isinstance(cached, str) else None


@dataclass(frozen=True)
class Item:
    """The bytes of one item; `when`: always, while sampling, in an update's pass, or in an
    optimizer step."""

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
    def peak(self) -> int:
        """The peak."""
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

    def view(self, width: int) -> list[Any]:
        """One row per item, and a line that explains what was counted."""
        narrow = width < 100
        table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False) if narrow else Table()
        table.title = f"memory on {self.device}, estimated: at most {show_bytes(self.peak)}"
        table.title_justify, table.show_header = "left", True
        for name in ("what", "bytes", "when", "how"):
            table.add_column(name, overflow="fold", justify="right" if name == "bytes" else "left")
        for item in self.items:
            table.add_row(item.what, show_bytes(item.bytes), item.when, item.how)
        apart = "Python and its libraries" if self.device == "cpu" else "the CUDA context"
        text = (
            f"{'' if self.sizes.exact else 'about '}{self.sizes.parameters:,} parameters, by "
            f"{self.source}; prompts of up to {self.prompt} tokens; {apart} not counted"
        )
        return [table, Text(text)]


def estimate(plan: Plan) -> Estimate | None:
    """None if the model's sizes are unknown."""
    config = plan.recipe.config
    m, r = config.model, config.rollout
    sizes, source = find_sizes(m)
    if sizes is None:
        return None
    device = _device(config.device)
    stored = BYTES[m.dtype]
    prompt = _prompt_tokens(plan, sizes)
    rows = r.prompts * r.samples
    items: list[Item] = []

    def add(what: str, size: float, when: str, how: str) -> None:
        if size > 0:
            items.append(Item(what, int(size), when, how))

    targets = None if m.lora.targets is None else list(m.lora.targets)
    adapters = sizes.adapters(m.lora.rank, targets)

    def add_network(name: str, parameters: int, head: int) -> None:
        trained = adapters or parameters
        width = 4 if adapters else stored  # adapters and heads are float32
        add(f"{name}: weights", parameters * stored, "always", f"{count(parameters)} {m.dtype}")
        if adapters:
            add(f"{name}: adapters", adapters * 4, "always", f"{count(adapters)} float32")
        add(f"{name}: head", head * 4, "always", f"{count(head)} float32")
        size = trained * width + head * 4
        add(f"{name}: gradients", size, f"{name}'s update", f"{count(trained + head)} trained")
        how = config[name]
        kinds = {
            "adamw": ("AdamW", 2, "two moments"),
            "muon": ("Muon", 2, "at most two moments"),
            "sgd": ("SGD", int(bool(how.momentum)), "momentum"),
        }
        called, moments, words = kinds[how.optimizer]
        add(f"{name}: {called}", moments * size, "always", f"{words} per parameter")

    add_network("actor", sizes.parameters, 0)
    if r.staleness:
        size = adapters * 4 or sizes.parameters * stored
        kept = f"{r.staleness} copies of the trained weights (rollout.staleness)"
        add("delayed weights", r.staleness * size, "always", kept)
        spare = "the current weights, while older weights sample"
        add("spare copy of the weights", size, "sampling", spare)
    if sampled := sampling_dtypes(config, device)[1]:
        add("actor: copy", sizes.parameters * BYTES[sampled], "always", f"{sampled} for sampling")
    if plan.reference and not m.lora.rank:
        how = f"{count(sizes.parameters)} {m.dtype}, frozen"
        add("reference: weights", sizes.parameters * stored, "always", how)
    for domain, path in plan.teachers.items():
        theirs, _ = find_sizes({"path": path})
        n = theirs.parameters if theirs else sizes.parameters
        how = f"{count(n)} {m.dtype}, frozen" + ("" if theirs else ", assuming the actor's size")
        add(f"teacher{f' of {domain}' if domain else ''}: weights", n * stored, "always", how)
    if plan.critic:
        wide = "value_logits" in plan.needs or "value_support" in plan.needs
        head = (sizes.hidden + 1) * (config.critic.bins if wide else 1)
        if config.critic.trunk == "own":
            add_network("critic", sizes.trunk, head)
        else:
            add("critic: head", head * 16, "always", "on the policy's trunk, with AdamW state")

    long = prompt + r.max_new_tokens
    cache = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim
    how = f"{rows} rows x {long} positions x {count(cache)} numbers"
    # Under autocast, too: rotary positions are float32, and what they touch becomes so.
    add("KV cache", rows * long * cache * BYTES[sampled or m.dtype], "sampling", how)
    # Logits, probabilities, their sums; and sorted with their order, where they are cut off.
    each = 32 if r.top_k or r.top_p < 1 else 12
    how = f"{rows} rows x {sizes.vocabulary:,} tokens, in several copies"
    add("next-token logits", rows * sizes.vocabulary * each, "sampling", how)
    for item in _update(plan, sizes, device, long, rows):
        add(*item)
    return Estimate(device, sizes, source, prompt, items)


def _update(
    plan: Plan, sizes: Sizes, device: str, long: int, rows: int
) -> Iterator[tuple[str, int, str, str]]:
    """The memory of an update's passes over `rows` rows of `long` positions."""
    config = plan.recipe.config
    stored = BYTES[config.model.dtype]
    positions, how = _pass(config, sizes, device, long, rows)
    floats, kept = _floats(config, sizes), "of the value passes"
    held = rows * long * (floats + sizes.vocabulary) * 4 <= room(device, USUAL).kept
    held = held and plan.one_update and config.train.token_budget is None
    every = rows * long * floats * stored
    activated = positions * floats * stored
    own = plan.critic and config.critic.trunk == "own"
    if held and plan.critic and not own:
        logits = rows * long * sizes.vocabulary * 4
        yield "actor: activations", every + logits, "actor's update", kept
    else:
        yield "actor: activations", activated, "actor's update", how
    if own and held:
        yield "critic: activations", every, "critic's update", kept
    elif own:
        yield "critic: activations", activated, "critic's update", how
    chunk = min(positions, room(device, USUAL).logits // sizes.vocabulary) * sizes.vocabulary
    how = "a chunk of the log-prob head, with its gradient"
    yield "logits", chunk * 12, "actor's update", how


def _floats(config: Config, sizes: Sizes) -> int:
    recompute = config.model.gradient_checkpointing
    return activations(sizes.hidden, sizes.inner, sizes.layers, grad=True, recompute=recompute)


def _device(name: str) -> str:
    if name != "auto":
        return name.partition(":")[0]
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def _pass(config: Config, sizes: Sizes, device: str, long: int, rows: int) -> tuple[int, str]:
    """Positions of an update's pass, and the reason for that number."""
    t = config.train
    here = -(-rows // t.minibatches) * long
    if t.microbatch:
        return min(here, t.microbatch * long), f"train.microbatch: {t.microbatch} rows"
    if t.token_budget:
        budget, how = t.token_budget, "train.token_budget"
    else:
        floats = _floats(config, sizes) + sizes.vocabulary
        budget = room(device, USUAL).activations // (4 * floats)
        how = "chosen from the model's size"
    budget = max(budget, long)  # a row is never cut
    return min(here, budget), f"{min(here, budget):,} positions per pass ({how})"


def _prompt_tokens(plan: Plan, sizes: Sizes) -> int:
    """Tokens of the longest of a few prompts, taken as a token per character where the vocabulary
    is of characters, else per three of them."""
    some = draw_examples(plan.task, plan.task_name, "train", 32, torch.Generator().manual_seed(0))
    texts = [p if isinstance(p, str) else "".join(m["content"] for m in p) for p, *_ in some]
    per_token = 1 if sizes.vocabulary < 1000 else 3
    return max(-(-len(text) // per_token) for text in texts)
