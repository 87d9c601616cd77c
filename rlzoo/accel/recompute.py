"""Gradient checkpointing: a layer's activations are computed again in the backward pass.

By torch around transformers' layers: their own requires training mode, in which dropout, router
jitter and other randomness are enabled.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rlzoo.accel import hf_internals
from rlzoo.errors import ModelError


def allow(model: nn.Module) -> None:
    """Raise ModelError if no layer's activations can be computed again."""
    if not _layers(model):
        raise ModelError(
            f"model.gradient_checkpointing: {type(model).__name__} does not support it"
        )


@contextmanager
def within(model: nn.Module) -> Iterator[None]:
    """In this context, passes with a gradient recompute activations."""
    layers = _layers(model) if torch.is_grad_enabled() else []
    with hf_internals.changed(*((x, "forward", partial(_twice, x.forward)) for x in layers)):
        yield


def _layers(model: nn.Module) -> list[nn.Module]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    inner = {part for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if layer not in inner]  # Zamba2 has layers in layers


def _twice(forward: Callable, *args: Any, **kwargs: Any) -> Any:
    reading = hf_internals.same()

    def contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), reading()  # of the forward pass, of its repetition

    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)
