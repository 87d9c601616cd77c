"""Changes to live objects of transformers and torch for which no public API exists.

Each function names the version that it was seen on. `tests/unit/accel/test_hf_internals.py` fails
with one line for each name that a later version no longer has.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from torch import Tensor, nn

T = TypeVar("T")


def import_models() -> None:
    """Import transformers' models without scipy.optimize, 35 MB: the one function that they use, to
    detect objects, imports it when called (`transformers.loss`, transformers 5.23)."""
    name, late = "scipy.optimize", ModuleType("scipy.optimize")

    def whole(wanted: str) -> Any:
        if wanted.startswith("__"):  # __path__, __file__: any import looks for these
            raise AttributeError(wanted)
        if sys.modules.get(name) is late:
            del sys.modules[name]
        return getattr(import_module(name), wanted)

    def assign(*given: Any, **named: Any) -> Any:
        return whole("linear_sum_assignment")(*given, **named)

    vars(late).update(linear_sum_assignment=assign, __getattr__=whole)
    sys.modules.setdefault(name, late)
    try:
        import_module("transformers.modeling_utils")
    finally:
        if sys.modules.get(name) is late:
            del sys.modules[name]


@contextmanager
def forward_of(module: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    """In this context, calling `module` calls `function`: an attribute of the object hides the
    method of its class (torch 2.13). A hook cannot replace the computation, only add to it."""
    module.forward = function
    try:
        yield
    finally:
        del module.forward


@contextmanager
def without_softcap(config: Any) -> Iterator[None]:
    """In this context, a text config has no `final_logit_softcapping`. Some configs refuse None,
    so this writes to the object's dict (transformers 5.23)."""
    settings = vars(config)
    before = settings["final_logit_softcapping"]
    settings["final_logit_softcapping"] = None
    try:
        yield
    finally:
        settings["final_logit_softcapping"] = before


def attention_of(config: Any) -> str | None:
    """The kind of attention that a config names, as `sdpa`: `_attn_implementation`, which has no
    public getter (transformers 5.23)."""
    return config._attn_implementation


@contextmanager
def attention_kind(config: Any, name: str) -> Iterator[None]:
    """In this context, a model of this config runs the attention registered as `name`. The public
    `set_attn_implementation` checks the model's class on each call; this is for each pass
    (`_attn_implementation`, transformers 5.23)."""
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def skip_packed_sequences(skip: Callable[[], bool]) -> None:
    """From now on, transformers does not search the positions of a pass for several sequences in a
    row while `skip()` is true: the search waits for the device
    (`masking_utils.find_packed_sequence_indices`, transformers 5.23)."""
    from transformers import masking_utils

    search = masking_utils.find_packed_sequence_indices

    def find(position_ids: Tensor) -> Any:
        return None if skip() else search(position_ids)

    masking_utils.find_packed_sequence_indices = find


def take_over(kind: type[T], filled: Any) -> T:
    """A new cache layer of this kind with all that a filled one has: keys, values and the
    attributes of its own kind (`cache_utils.DynamicLayer`, transformers 5.23)."""
    layer = kind()
    vars(layer).update(vars(filled))
    return layer


def has_adapters(model: Any) -> bool:
    """Whether LoRA adapters were added to a transformers model (`_hf_peft_config_loaded`,
    transformers 5.23)."""
    return getattr(model, "_hf_peft_config_loaded", False)


def forget_adapters(model: Any) -> None:
    """Mark a model whose adapters were removed as one without (`_hf_peft_config_loaded`,
    transformers 5.23)."""
    model._hf_peft_config_loaded = False


def checkpoint_by(module: Any, function: Callable[..., Any]) -> None:
    """A layer with gradient checkpointing calls `function(layer, *inputs)` in place of torch's
    `checkpoint` (`_gradient_checkpointing_func`, transformers 5.23)."""
    module._gradient_checkpointing_func = function


@contextmanager
def sparse_gradients(tables: Sequence[nn.Embedding]) -> Iterator[None]:
    """In this context, a backward pass leaves a sparse gradient of the tables' weights. `sparse`
    and `padding_idx` are read at each call (torch 2.13).

    With `padding_idx` torch counts the rows that are left, and waits for a device. So there a hook
    gives the padding token its gradient of 0.
    """
    before = [table.padding_idx for table in tables]
    hooks = []
    for table, index in zip(tables, before, strict=True):
        table.sparse = True
        if index is not None and table.weight.device.type != "cpu":
            hooks.append(table.register_forward_hook(partial(_no_padding, index)))
            table.padding_idx = None
    try:
        yield
    finally:
        for table, index in zip(tables, before, strict=True):
            table.sparse, table.padding_idx = False, index
        for hook in hooks:
            hook.remove()


def _no_padding(padding: int, table: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
    """Leave the token `padding` no gradient, as `nn.Embedding` does with `padding_idx`."""
    if out.requires_grad:
        out.register_hook(lambda g: g.masked_fill((given[0] == padding)[..., None], 0))


def stored_in_out(module: nn.Module) -> bool:
    """Whether the matrix of a layer is stored as (in, out), not as a linear layer's (out, in)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, (nn.Embedding, Conv1D))
