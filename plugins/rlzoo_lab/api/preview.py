"""Previews a run for `rlzoo show`: prompt format and memory. Nothing is loaded.

The sizes come from a `config.json` if the model is stored here, otherwise from the recipe's
`model.shape`. Only the bytes of weights, gradients and optimizer states are counted: parameters x
bytes x copies. Activations, caches and logits come on top; what they take is measured by a run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from rlzoo.accel.sampling_copy import sampling_dtypes
from rlzoo.errors import typed_path
from rlzoo.lm.prompts import drawn, how_read
from rlzoo.recipe.files import config_dirs
from rlzoo.recipe.plan import Plan
from rlzoo_lab.view.blocks import Block, Column, Table, Text, column
from rlzoo_lab.view.numbers import count, show_bytes

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

HEADS = ("lm_head", "embed_out")  # what transformers calls the layer that gives the logits


@dataclass(frozen=True)
class Sizes:
    """A causal LM: its width, and the shapes of its parameters by name. exact: whether these are
    the model's own, not those of a similar model."""

    hidden: int
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


def prompts_read(plan: Plan) -> str | None:
    """How prompts are formatted, in words; None without a chat template."""
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
    known = {**config, **config.get("text_config", {})}
    several = known.pop("text_config", None) is not None
    hidden: Any = known.get("hidden_size") or known.get("n_embd")
    layers = known.get("num_hidden_layers") or known.get("n_layer")
    needed = (hidden, layers, known.get("vocab_size"))
    if not all(isinstance(n, int) and n > 0 for n in needed):
        return None
    if folder and not several and (folder / "model.safetensors").is_file():
        return Sizes(hidden, _stored(folder / "model.safetensors", known), True)
    return Sizes(hidden, *_made(known))


def _stored(file: Path, config: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Shapes as the head of the weights' file lists them: in no time."""
    with safe_open(file, "pt") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    tied = config.get("tie_word_embeddings")
    # A tied head may be stored all the same, and GPT-2's masks are.
    return {name: shape for name, shape in shapes.items()
            if not (tied and name.split(".")[0] in HEADS) and len(shape) < 4}  # fmt: skip


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


def blocks(memory: Mapping[str, Any]) -> list[Block]:
    """An estimate: one row per item, and a line that explains what was counted."""
    items = memory["items"]
    sizes = [f"{count(i['parameters'])} x {i['width']} B x {i['copies']}" for i in items]
    columns = [
        column("what", (i["what"] for i in items)),
        Column("parameters", sizes, left=True),
        column("bytes", (i["bytes"] for i in items), show_bytes),
        column("how", (i["how"] for i in items), left=True),
    ]
    total = show_bytes(memory["total_bytes"])
    title = f"memory on {memory['device']} of weights and optimizers: {total}"
    text = (
        f"{'' if memory['parameters_exact'] else 'about '}{memory['parameters']:,} parameters, by "
        f"{memory['from']}. Activations, caches and logits come on top: train.steps=2 measures "
        "the peak (peak_rss_mb in summary.json) and the time of a step"
    )
    return [Table(columns, title), Text(text)]


def estimate(plan: Plan) -> dict[str, Any] | None:
    """The weights of a run, their gradients and optimizer states: `copies` of `parameters`, each of
    `width` bytes. None if the model's sizes are unknown."""
    config = plan.recipe.config
    m, r = config.model, config.rollout
    sizes, source = find_sizes(m)
    if sizes is None:
        return None
    device = config.device.partition(":")[0]
    if device == "auto":
        device = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    stored = BYTES[m.dtype]
    items: list[dict[str, Any]] = []

    def add(what: str, parameters: int, width: int, copies: int, how: str) -> None:
        if parameters > 0:
            items.append({"what": what, "parameters": parameters, "width": width, "copies": copies,
                          "how": how, "bytes": parameters * width * copies})  # fmt: skip

    targets = None if m.lora.targets is None else list(m.lora.targets)
    adapters = sizes.adapters(m.lora.rank, targets)

    def add_network(name: str, parameters: int, head: int) -> None:
        how = config[name]
        moments, words = {
            "adamw": (2, "AdamW's two moments"),
            "muon": (2, "at most two moments of Muon"),
            "sgd": (int(bool(how.momentum)), "SGD's momentum"),
        }[how.optimizer]
        trained = 2 + moments, f"weights, gradients, {words if moments else 'no optimizer state'}"
        add(name, parameters, stored, *((1, "frozen") if adapters else trained))
        add(f"{name}: adapters", adapters, 4, *trained)  # adapters and heads are float32
        add(f"{name}: head", head, 4, *trained)

    add_network("actor", sizes.parameters, 0)
    if r.staleness:
        n, width = (adapters, 4) if adapters else (sizes.parameters, stored)
        kept = "copies of the trained weights (rollout.staleness)"
        add("delayed weights", n, width, r.staleness, kept)
    if sampled := sampling_dtypes(config, device)[1]:
        add("actor: copy", sizes.parameters, BYTES[sampled], 1, f"{sampled} for sampling")
    if plan.reference and not m.lora.rank:
        add("reference", sizes.parameters, stored, 1, "frozen")
    for domain, path in plan.teachers.items():
        theirs, _ = find_sizes({"path": path})
        n = theirs.parameters if theirs else sizes.parameters
        how = "frozen" + ("" if theirs else ", assuming the actor's size")
        add(f"teacher{f' of {domain}' if domain else ''}", n, stored, 1, how)
    if plan.critic:
        wide = "value_logits" in plan.needs or "value_support" in plan.needs
        head = (sizes.hidden + 1) * (config.critic.bins if wide else 1)
        if config.critic.trunk == "own":
            add_network("critic", sizes.trunk, head)
        else:
            add("critic: head", head, 4, 4, "on the policy's trunk, with AdamW's two moments")
    return {
        "device": device,
        "parameters": sizes.parameters,
        "parameters_exact": sizes.exact,
        "from": source,
        "items": items,
        "total_bytes": sum(item["bytes"] for item in items),
    }
