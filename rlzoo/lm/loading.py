"""Models and tokenizers from disk or the hub, and how a prompt becomes tokens.

Only safetensors are read: nothing is unpickled, and a model's own code runs only with
`model.trust_remote_code`.
"""

import json
import math
import re
import socket
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch

from rlzoo.accel.hf_internals import fuse_gelu, import_models
from rlzoo.errors import ModelError, need, typed_path
from rlzoo.lm.templates import bind
from rlzoo.lm.weights import load_weights, reading, refuse_non_finite, said_by
from rlzoo.plugin.installed import installed
from rlzoo.plugin.protocols import ModelFormat
from rlzoo.recipe.files import config_dirs

# Names of the position limit in transformers' configs, and of sparse attention's.
POSITIONS = ("max_position_embeddings", "max_seq_len", "n_positions", "n_ctx")
# What a policy does without: a load-balancing loss, which counts other tokens than it gets, and
# weights that shrink in place where there is no gradient (RWKV), and would be saved so.
UNWANTED = {"output_router_logits": False, "rescale_every": 0}
SPARSE = ("index_topk", "keep_window_size")
CONVERTED = "gguf.json"  # the note in a folder that was converted from another format

# ---------------------------------------------------------------- finding


def reachable(url: str) -> bool:
    """Whether a host's name resolves."""  # the hub's own retries take half a minute
    parts = urlparse(url)
    if urllib.request.getproxies().get(parts.scheme):
        return True  # the proxy resolves it
    try:
        socket.getaddrinfo(parts.hostname, parts.port or parts.scheme)
    except OSError:
        return False
    return True


def resolve_path(path: str | None, key: str = "model.path", *, code: bool = False) -> Path:
    """A model folder: as given, below one of the config folders (`model/tiny`), converted by a
    `ModelFormat`, or the local copy of a hub id (`Qwen/Qwen2.5-0.5B`), with its own code if
    `code`."""
    assert path is not None, key  # a recipe without one is refused where it is composed
    for folder in (typed_path(path), *(d / path for d in config_dirs())):
        if any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            return folder
    for point in installed("rlzoo.models"):
        convert: ModelFormat = point.load()
        if converted := convert(path, key):
            return converted
    if (typed_path(path) / "model" / "config.json").is_file():
        raise ModelError(f"{key}: {path!r} is a run; did you mean {str(Path(path, 'model'))!r}?")
    if Path(path).is_dir():
        raise ModelError(f"{key}: {path!r} is not a model, because it contains no config.json")
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path):
        return _from_hub(path, key, code)
    raise ModelError(f"{key}: {path!r} is not a model, because there is no such folder")


def origin(path: str, folder: Path) -> tuple[str, str]:
    """A name by which the model of `path`, found in `folder`, can be loaded from anywhere, and a
    note if its weights come from a hub id or a GGUF file."""
    from huggingface_hub import constants

    if folder.is_relative_to(constants.HF_HUB_CACHE):
        return path, f"{path}: from the hub's cache, revision {folder.name[:12]}"
    if (file := folder / CONVERTED).is_file():
        converted = json.loads(file.read_text("utf-8"))
        return converted["source"], converted["note"]
    return str(folder.resolve()), ""


def _from_hub(name: str, key: str, code: bool) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", *(["*.py"] if code else [])]
    try:
        folder = Path(snapshot_download(name, allow_patterns=wanted, local_files_only=True))
        if any(folder.glob("*.py")) or not code:
            return folder
    except LocalEntryNotFoundError:
        pass
    subject = f"{key}: {name!r} is not a local folder, and the hub id"
    if constants.HF_HUB_OFFLINE or not reachable(constants.ENDPOINT):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "there is no network"
        raise ModelError(f"{subject} is not in the cache ({constants.HF_HUB_CACHE}), and {why}")
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(f"{subject} cannot be loaded: {said_by(error)}") from None


# ---------------------------------------------------------------- loading


def load_config(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """The model's config; `eos_token_id` lists every token that ends a response."""
    from transformers import AutoConfig

    with reading(f"{folder}: has no usable config.json"):
        config = AutoConfig.from_pretrained(
            _base_of(folder), local_files_only=True, trust_remote_code=trust_remote_code
        )
    # Chat models list their end-of-turn tokens in generation_config.json only.
    file = _base_of(folder) / "generation_config.json"
    with reading(f"{file}: cannot be read"):
        extra = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
        listed = (getattr(config, "eos_token_id", None), extra)
        ids = {int(i) for x in listed for i in (x if isinstance(x, list) else [x]) if i is not None}
        rows = getattr(config.get_text_config(), "vocab_size", None) or math.inf
        if odd := sorted(i for i in ids if not 0 <= i < rows):
            warnings.warn(
                f"{folder}: ignoring the EOS ids {odd}: the model's tokens are 0 to {rows - 1}",
                stacklevel=2,
            )
        config.eos_token_id = sorted(ids.difference(odd)) or None
    return config


def _base_of(folder: Path) -> Path:
    """`folder`, or its base model if it contains only an adapter."""
    if (folder / "config.json").is_file():
        return folder
    return _base_of(_under(folder))


def _under(folder: Path) -> Path:
    """The base of the adapter in `folder`: a model, or another adapter."""
    file = folder / "adapter_config.json"
    with reading(f"{file}: cannot be read"):
        base = str(json.loads(file.read_text())["base_model_name_or_path"])
    return resolve_path(base, str(file))


def load_tokenizer(
    folder: Path,
    *,
    trust_remote_code: bool = False,
    chat_args: Mapping[str, Any] | None = None,
    key: str = "model.chat_args",
    ends: bool = True,
) -> Any:
    """The tokenizer of the model in `folder`. chat_args: of its template. ends: refuse one without
    EOS."""
    from transformers import AutoTokenizer

    home = folder if (folder / "tokenizer_config.json").is_file() else _base_of(folder)
    if not (home / "tokenizer.json").is_file() and find_spec("sentencepiece") is None:
        for file in home.glob("*.model"):  # transformers would recommend tiktoken, whose are text
            if file.read_bytes()[:1] == b"\n":
                missing = f"{folder}: {file.name} needs sentencepiece"
                raise ModelError(f"{missing}: pip install sentencepiece")
    with reading(f"{folder}: has no usable tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(
            home, local_files_only=True, trust_remote_code=trust_remote_code
        )
        tokenizer("1")  # where settings of a wrong type show
    tokenizer.padding_side = "left"
    if tokenizer.eos_token_id is None and ends:
        raise ModelError(
            f"{folder}: the tokenizer has no EOS token, so responses could not end; "
            "rollout.ignore_eos=true gives them a fixed length"
        )
    if tokenizer.pad_token_id is None:  # masks show padding, never its id
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return bind(tokenizer, chat_args, key)


def load_causal_lm(
    folder: Path,
    *,
    dtype: str = "float32",
    attention: str = "auto",
    trust_remote_code: bool = False,
) -> Any:
    """The causal LM in `folder`, in eval mode, with its adapter merged if it is one.

    dtype: that of the weights. attention: an implementation of transformers' ("sdpa", "eager"), or
    "auto".
    """
    import_models()
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        need("peft", str(folder))
        base = load_causal_lm(_under(folder), dtype=dtype, attention=attention,
                              trust_remote_code=trust_remote_code)  # fmt: skip
        return _with_adapter(base, folder)
    config = load_config(folder, trust_remote_code=trust_remote_code)
    if quantized_by(config) in DEQUANTIZED:
        # On a GPU, too: what is trained has masters.
        config.quantization_config["dequantize"] = True
    text = config.get_text_config()
    for name, off in UNWANTED.items():
        if getattr(text, name, off) != off:
            setattr(text, name, off)
    chosen = {"dtype": getattr(torch, dtype), "trust_remote_code": trust_remote_code}
    if attention != "auto":
        chosen["attn_implementation"] = attention
    if dtype == "float64":
        chosen["experts_implementation"] = "eager"  # grouped products lack float64
    model = load_weights(AutoModelForCausalLM, folder, config=config, **chosen)
    fuse_gelu(model)
    # A model's own sampling defaults (temperature, top-k, repetition penalty) would change the
    # policy unseen; rlzoo's are the recipe's.
    pad = getattr(config, "pad_token_id", None)  # -1 in early LLaMAs, which cannot be saved
    pad = pad if pad is not None and pad >= 0 else None
    model.generation_config = GenerationConfig(eos_token_id=config.eos_token_id, pad_token_id=pad)
    # Padding is at the end, where causal attention never looks: no mask is missing.
    vars(trunk_of(model))["warn_if_padding_and_no_attention_mask"] = lambda *given: None
    return model.eval()


# Formats that transformers turns into weights of the requested dtype, and can do so on any device.
DEQUANTIZED = ("fp8", "mxfp4")


def quantized_by(config: Any) -> str | None:
    """transformers' name for the quantization of the weights in a folder; None: not quantized."""
    how = getattr(config, "quantization_config", None)
    return how.get("quant_method") if isinstance(how, dict) else None


def _with_adapter(base: Any, folder: Path) -> Any:
    """The adapter in `folder`, merged into its base model."""
    from peft import PeftModel

    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelError(
            f"{folder}: has no adapter_model.safetensors (pickled formats are not read)"
        )
    with reading(f"{folder}: cannot be loaded"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft's use of transformers
        warnings.filterwarnings("error", ".*missing adapter keys")
        tuned = PeftModel.from_pretrained(base, str(folder))
        if not hasattr(tuned, "merge_and_unload"):
            raise ModelError(f"{folder}: a {tuned.peft_type} adapter cannot be merged into weights")
        merged = tuned.merge_and_unload()
    refuse_non_finite(merged, folder)
    return merged.requires_grad_(True).eval()  # peft froze them


def load_trunk(
    folder: Path, *, dtype: str = "float32", trust_remote_code: bool = False
) -> tuple[Any, torch.Tensor | None]:
    """The trunk of the model in `folder`, and of a classifier with one label (a reward model) the
    weight (1, H) of its head."""
    from transformers import AutoModelForSequenceClassification

    config = load_config(folder, trust_remote_code=trust_remote_code)
    kinds = getattr(config, "architectures", None) or []
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        causal = load_causal_lm(folder, dtype=dtype, trust_remote_code=trust_remote_code)
        return trunk_of(causal), None
    model = load_weights(
        AutoModelForSequenceClassification,
        folder,
        dtype=getattr(torch, dtype),
        trust_remote_code=trust_remote_code,
    )
    head: Any = getattr(model, "score", None)
    scores = isinstance(head, torch.nn.Linear) and head.out_features == 1
    return model.base_model.eval(), head.weight.detach() if scores else None


def trunk_of(model: Any) -> Any:
    """A causal LM without its head, which returns hidden states."""
    if model.base_model is not model:
        return model.base_model
    return next((part for part in model.children() if hasattr(part, "config")), model)


@torch.no_grad()
def refuse_ahead(read: Callable[[torch.Tensor], torch.Tensor], device: Any, name: str) -> None:
    """Raise ModelError if the output of `read` for token ids (2, 2) changes at a token with the one
    that follows, as in a model that fills in masks (BERT)."""
    out = read(torch.tensor([[0, 0], [0, 1]], device=device))
    rounding = 1e-2 if out.element_size() < 4 else 1e-4
    largest = out.nan_to_num(0, 0, 0).abs().max()
    if bool(((out[0, 0] - out[1, 0]).abs() > rounding * largest).any()):
        raise ModelError(
            f"{name} is not causal: its output at a token changes with the tokens that follow "
            "(some models are causal if their config.json has is_decoder: true)"
        )


def limit_of(config: Any) -> tuple[int, str] | None:
    """The longest row (tokens) that the model reads correctly, and a name for that limit, if
    any."""
    config = config.get_text_config()
    settings = vars(config) | {n: getattr(config, n, None) for n in POSITIONS}
    positions = [settings[n] for n in POSITIONS if settings.get(n)]
    limits = [(n, f"the model's {n} positions") for n in positions]
    # A sparse choice of keys is made for a pass: rows next to each other change it.
    limits += [(settings[n], f"the {settings[n]} keys of {n}") for n in SPARSE if settings.get(n)]
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *rope.values()):  # of the model, or of each kind of layer
        kind = one.get("rope_type") if isinstance(one, dict) else None
        if kind in ("longrope", "dynamic"):
            n = one.get("original_max_position_embeddings") or positions[0]
            limits.append(
                (n, f"the {n} positions after which its {kind} RoPE depends on other rows")
            )
    return min(limits, default=None)


def eos_ids(config: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a response: the tokenizer's EOS and the model's own list."""
    listed = getattr(config, "eos_token_id", None)
    listed = listed if isinstance(listed, list) else [listed]
    return sorted({int(i) for i in [tokenizer.eos_token_id, *listed] if i is not None})
