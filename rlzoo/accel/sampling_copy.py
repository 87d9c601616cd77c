"""The copy of the policy's network that samples: in another dtype, with adapters merged."""

import copy
from typing import Any

import torch
from torch import nn

from rlzoo.accel.hf_internals import forget_adapters
from rlzoo.accel.shard import whole_tensor
from rlzoo.recipe.keys import Config


def sampling_dtypes(config: Config, device: str) -> tuple[str | None, str | None]:
    """The dtype of sampling (`rollout.dtype`), None for that of the policy's passes; and the dtype
    of the copy that samples, None where the policy itself samples."""
    model, dtype = config.model, None
    if config.rollout.dtype != "auto":
        dtype = str(config.rollout.dtype)
    elif device == "cuda" and model.autocast != "none" and model.dtype != "float64":
        dtype = "bfloat16"
    return dtype, dtype if dtype != model.dtype or model.lora.rank else None


class SamplingCopy:
    """A copy of a causal LM whose floating-point weights are of `dtype`. Buffers, which are few and
    may need their precision, stay as they are; dropout and adapters are left out."""

    def __init__(self, model: Any, dtype: torch.dtype):
        self.source = model
        weights = dict(model.named_parameters())
        blank = {
            id(w): nn.Parameter(torch.empty_like(w, dtype=dtype), requires_grad=False)
            for w in weights.values()
        }
        named = {name: blank[id(w)] for name, w in weights.items()}
        # What deepcopy finds in its memo it does not copy: no weight is there three times.
        self.model = copy.deepcopy(model, dict(blank))
        # Adapters by name: experts nest one around the other, a weight of the same layer each.
        self.adapted = [name for name, m in model.named_modules() if hasattr(m, "get_delta_weight")]
        for name in self.adapted:
            if name == _outermost(name):
                parent, _, attribute = name.rpartition(".")
                layer = self.model.get_submodule(name).get_base_layer()
                setattr(self.model.get_submodule(parent), attribute, layer)
        forget_adapters(self.model)
        self.plain = {name: w for name, w in named.items() if "lora_" not in name}

    @torch.no_grad()
    def follow(self) -> Any:
        """The copy, after copying the current weights in one pass over them."""
        weights = dict(self.source.named_parameters())
        given = [whole_tensor(weights[name]) for name in self.plain]
        torch._foreach_copy_(list(self.plain.values()), given)
        for name in self.adapted:
            layer = self.source.get_submodule(name)
            adapted = getattr(layer, "parameter_name", "weight")
            merged = getattr(layer.get_base_layer(), adapted)
            for adapter in layer.active_adapters:
                merged = merged + layer.get_delta_weight(adapter).to(merged.dtype)
            getattr(self.model.get_submodule(_outermost(name)), adapted).copy_(merged)
        return self.model


def _outermost(name: str) -> str:
    """The name of a layer, of one of the adapters around it."""
    while name.endswith(".base_layer"):
        name = name.removesuffix(".base_layer")
    return name
