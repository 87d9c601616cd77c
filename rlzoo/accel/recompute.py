"""Gradient checkpointing: a layer's activations are computed again in the backward pass.

transformers' layers do so in training mode, which would also enable dropout, router jitter and
other randomness. So only its flag is set, for the duration of a pass, and a layer runs in eval
mode both times.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rlzoo.accel import hf_internals
from rlzoo.errors import ModelError


def allow(model: Any) -> None:
    """Let passes `within` compute activations again; ModelError where the model cannot."""
    if _asking(model):
        return
    # The older name warns where the newer one is there.
    enable = getattr(model, "activation_checkpointing_enable", None)
    try:
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    except ValueError:
        raise ModelError(
            f"model.gradient_checkpointing: {type(model).__name__} does not support it"
        ) from None
    for module in _asking(model):
        hf_internals.checkpoint_by(module, _twice)
        for name, value in vars(module).items():  # between its layers it may drop out
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


@contextmanager
def within(model: nn.Module) -> Iterator[None]:
    """In this context, passes with a gradient recompute activations."""
    asking = _asking(model) if torch.is_grad_enabled() else []
    for module in asking:
        module.training = True
    try:
        yield
    finally:
        for module in asking:
            module.training = False


def _asking(model: nn.Module) -> list[Any]:
    return [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]


def _twice(function: Callable, *args: Any, **kwargs: Any) -> Any:
    run = partial(_in_eval_mode, hf_internals.same(), function)
    return checkpoint(run, *args, use_reentrant=False, **kwargs)


def _in_eval_mode(
    reading: Callable[[], AbstractContextManager], function: Callable, *args: Any, **kwargs: Any
) -> Any:
    # A layer's bound method, or its plain forward with the layer as the first argument.
    given = function.args if isinstance(function, partial) else ()
    layer = given[0] if given else getattr(function, "__self__", None)
    # Modules within a layer, too: one that recomputes only once would mix up what is saved.
    asking = [m for m in layer.modules() if m.training] if isinstance(layer, nn.Module) else []
    for module in asking:
        module.training = False
    try:
        with reading():
            return function(*args, **kwargs)
    finally:
        for module in asking:
            module.training = True
