"""Changes to live objects of transformers and torch for which no public API exists; among them the
attention that reads rows in a line.

Each function names the version that it was seen on. `tests/unit/accel/test_hf_internals.py` fails
with one line for each name that a later version no longer has.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlzoo.accel.passes import Packed
from rlzoo.errors import ModelError

T = TypeVar("T")

LARGE = 2**18  # weights of a layer: see `by_onednn`


@contextmanager
def changed(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """In this context, objects have other attributes, (object, name, value), written to their
    dicts. A module's `forward` there hides the method of its class (torch 2.13), where a hook could
    only add to it; a config's `final_logit_softcapping` may be None there, which some refuse
    (transformers 5.23); an embedding's `sparse` is read at each call (torch 2.13)."""
    # Values of a context around this one.
    before = [{name: vars(x)[name]} if name in vars(x) else {} for x, name, _ in changes]
    for thing, name, value in changes:
        vars(thing)[name] = value
    try:
        yield
    finally:
        for (thing, name, _), former in zip(changes, before, strict=True):
            del vars(thing)[name]
            vars(thing).update(former)


def attention_of(config: Any) -> str | None:
    """The kind of attention that a config names, as `sdpa`: `_attn_implementation`, which has no
    public getter (transformers 5.23)."""
    return config._attn_implementation


def take_over(kind: type[T], filled: Any) -> T:
    """A new cache layer of this kind with all that a filled one has: keys, values and the
    attributes of its own kind (`cache_utils.DynamicLayer`, transformers 5.23)."""
    layer = kind()
    vars(layer).update(vars(filled))
    return layer


def plain_cache(cache: Any, *others: type) -> bool:
    """Whether a model's cache contains only plain layers of keys and values, or `others`."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    # Kinds derived from these hold more than keys and values (a recurrent state, say).
    layers = cache.layers if type(cache) is DynamicCache else []
    return bool(layers) and all(type(layer) in (DynamicLayer, *others) for layer in layers)


def has_adapters(model: Any) -> bool:
    """Whether LoRA adapters were added to a transformers model (`_hf_peft_config_loaded`,
    transformers 5.23)."""
    return getattr(model, "_hf_peft_config_loaded", False)


def forget_adapters(model: Any) -> None:
    """Mark a model whose adapters were removed as one without (`_hf_peft_config_loaded`,
    transformers 5.23)."""
    model._hf_peft_config_loaded = False


def stored_in_out(module: nn.Module) -> bool:
    """Whether the matrix of a layer is stored as (in, out), not as a linear layer's (out, in)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, (nn.Embedding, Conv1D))


@contextmanager
def by_onednn(*models: nn.Module | None, packed: bool = False) -> Iterator[None]:
    """In this context, on a CPU in float32 and without gradients, large linear layers of the models
    run by oneDNN: 1.1 to 1.6 times as fast as MKL's on an AMD EPYC; not measured on others.

    packed: their weights are laid out for it once, in a copy, which pays for few rows.
    (`torch.ops.mkldnn`, which torch.compile calls, torch 2.13.)
    """
    layers = {  # a network that is there twice has each layer once
        module: None
        for model in models
        for module in (() if model is None else model.modules())
        if type(module) is nn.Linear and _large(module.weight)
    }
    laid_out = {  # for 64 rows; the layout serves any number
        x: torch.ops.mkldnn._reorder_linear_weight(x.weight.detach(), 64) for x in layers if packed
    }
    with changed(*((x, "forward", partial(_linear, x, laid_out.get(x))) for x in layers)):
        yield


def _large(weight: Tensor) -> bool:
    single = (weight.device.type, weight.dtype) == ("cpu", torch.float32)
    return single and weight.numel() >= LARGE and torch.backends.mkldnn.is_available()


def _linear(module: nn.Linear, laid_out: Tensor | None, x: Tensor) -> Tensor:
    return linear(x, module.weight, module.bias, laid_out)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, laid_out: Tensor | None = None
) -> Tensor:
    """x @ weight^T + bias, by oneDNN where `by_onednn` uses it."""
    plain = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")
    if plain or x.dtype != torch.float32 or not _large(weight):
        return F.linear(x, weight, bias)
    laid_out = weight if laid_out is None else laid_out
    return torch.ops.mkldnn._linear_pointwise(x, laid_out, bias, "none", [], "")


SPELLED_OUT = ("NewGELUActivation", "FastGELUActivation", "BloomGelu")


def fuse_gelu(model: nn.Module) -> None:
    """Replace GELUs that transformers spells out in eight operations (GPT-2, GPT-J, Phi, Bloom) by
    torch's own, the same function (`activations`, transformers 5.23)."""
    from transformers.activations import GELUTanh

    for part in model.modules():
        for name, child in part.named_children():
            if type(child).__name__ in SPELLED_OUT:
                setattr(part, name, GELUTanh())


# ---------------------------------------------------------------- attention


NAME = "rlzoo_rows"  # among transformers' kinds of attention


class _Here(threading.local):
    """A thread's state: two runs may train in one process."""

    current: tuple[Any, Packed] | None = None  # the pass that is being made: (model, its line)


_here = _Here()


def same() -> Callable[[], AbstractContextManager]:
    """The context of the current pass, which a layer that is recomputed later must enter."""
    return partial(in_line, *_here.current) if _here.current else nullcontext


@contextmanager
def in_line(model: Any, line: Packed) -> Iterator[None]:
    """In this context, `model` reads rows that are in this line, by our kind of attention, for
    which transformers makes no mask. Its public setter checks the model's class on each call; this
    is for each pass (`_attn_implementation`, transformers 5.23)."""
    import_models()
    config, before = model.config, (model.config._attn_implementation, _here.current)
    config._attn_implementation, _here.current = NAME, (model, line)
    try:
        yield
    finally:
        config._attn_implementation, _here.current = before


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
) -> tuple[Tensor, None]:
    """Like transformers' `sdpa_attention_forward`: query, key and value are (1, heads, L, d), and
    the output (1, L, heads, d). It takes the rows' queries, keys and values out of the line, runs
    torch's causal kernel on them, without a mask, and puts the outputs back: each row sees only its
    own tokens."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is not None or more.get("position_bias") is not None:
        raise ModelError("its attention has its own mask or bias")
    assert _here.current is not None
    line = _here.current[1]
    index = line.rows.flatten()
    taken = (x[0].transpose(0, 1).index_select(0, index) for x in (query, key, value))
    query, key, value = (x.unflatten(0, line.rows.shape).transpose(1, 2) for x in taken)
    out, _ = sdpa_attention_forward(module, query, key, value, None, **more)
    return out.flatten(0, 1).index_select(0, line.back)[None], None


@cache
def import_models() -> None:
    """Import transformers' models and register our kind of attention, once, without scipy.optimize,
    37 MB: the one function of it that they use, to detect objects, is imported when it is called
    (`transformers.loss`, 5.23)."""
    name, late = "scipy.optimize", ModuleType("scipy.optimize")
    vars(late)["linear_sum_assignment"] = lambda *x: import_module(name).linear_sum_assignment(*x)
    ours = sys.modules.setdefault(name, late) is late
    try:
        import_module("transformers.modeling_utils").AttentionInterface.register(NAME, attend)
    finally:
        if ours:
            del sys.modules[name]
