"""The optimizers that a recipe may choose: AdamW, Muon and SGD, all torch's own."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from rlzoo.accel.hf_internals import stored_in_out
from rlzoo.errors import ModelError
from rlzoo.recipe.keys import Optimizer

MUON = 0.95  # torch's default momentum


def optimizer_of(network: nn.Module, config: Optimizer) -> torch.optim.Optimizer:
    """The optimizer of a network's trained weights."""
    trained = [p for p in network.parameters() if p.requires_grad]
    lr, decay = config.lr, config.weight_decay
    if config.optimizer == "adamw":
        return _adamw(trained, config)
    if config.optimizer == "sgd":
        momentum = config.momentum or 0.0
        return torch.optim.SGD(trained, lr, momentum, weight_decay=decay, fused=True)
    momentum = MUON if config.momentum is None else config.momentum
    matrices = list(_matrices(network, config.muon))
    names = [name for name, weight in network.named_parameters() if weight.ndim == 2]
    if odd := [x for x in config.muon or () if not any(x in name for name in names)]:
        line = f"no matrix has {odd[0]!r} in its name; matrices: {', '.join(names)}"
        raise ModelError(f"actor.muon, critic.muon: {line}")
    chosen = {id(weight) for weight, _ in matrices}
    scales = sorted({s for _, s in matrices})
    groups = [{"params": [w for w, s in matrices if s == x], "scale": x} for x in scales]
    parts: list[torch.optim.Optimizer] = []
    if others := [p for p in trained if id(p) not in chosen]:
        parts.append(_adamw(others, config))
    if groups:
        parts.append(torch.optim.Muon(groups, lr, decay, momentum))
    return Several(parts)


def _adamw(weights: Sequence[nn.Parameter], config: Optimizer) -> torch.optim.AdamW:
    betas = config.betas[0], config.betas[1]  # fused: no copies of the weights on the way
    return torch.optim.AdamW(weights, config.lr, betas, config.eps, config.weight_decay, fused=True)


def _matrices(
    network: nn.Module, names: Sequence[str] | None
) -> Iterator[tuple[nn.Parameter, float]]:
    """The matrices for Muon, each with a factor of its rate. Muon scales the step of a matrix
    (out, in) by sqrt(max(1, out / in)); the factor corrects that where it is stored as (in, out).

    names: parts of the names of the matrices; None: all, except embeddings and the head."""
    heads = getattr(network, "get_output_embeddings", lambda: getattr(network, "head", None))()
    for path, module in network.named_modules():
        for name, weight in module.named_parameters(path, recurse=False):
            inner = not isinstance(module, nn.Embedding) and module is not heads
            wanted = inner if names is None else any(part in name for part in names)
            if weight.ndim == 2 and weight.requires_grad and wanted:
                wide = weight.shape[1] / weight.shape[0]
                turned = max(1.0, wide) / max(1.0, 1 / wide) if stored_in_out(module) else 1.0
                yield weight, turned**0.5


class Several(torch.optim.Optimizer):
    """Optimizers of different weights as one, whose groups and state are theirs."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]):
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        begin = 0
        for part in self.parts:
            end = begin + len(part.param_groups)
            part.param_groups, part.state = self.param_groups[begin:end], self.state
            begin = end

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()
