"""LoRA: small matrices that are trained instead of a model's own weights."""

import math
import warnings
from typing import Any

import torch

from rlzoo.errors import ModelError
from rlzoo.lm.weights import said_by


def add_lora(
    model: Any, *, rank: int, alpha: float, targets: list[str] | None, base: str, seed: int = 0
) -> None:
    """Put LoRA adapters of `rank` on the linear layers `targets` (None: all but the head), scaled
    by alpha / rank; only they are trained. B starts at zero, so nothing changes yet.

    base: what the saved adapter names as its model, a folder or a hub id. seed: draws A.
    Source: Hu et al. 2021, arXiv:2106.09685; by the peft library.
    """
    from peft import LoraConfig
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        target_modules=targets or "all-linear",
        lora_dropout=0.0,  # models stay in eval mode
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()),  # GPT-2's layers
        task_type="CAUSAL_LM",
    )
    model.name_or_path = base
    # peft looks for the base's vocabulary at each save; rlzoo changes none.
    warnings.filterwarnings("ignore", "Could not find a config file in")
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    if ends[1] is not None and ends[0].weight is ends[1].weight:
        tied = [n for n, m in model.named_modules() if m in ends]
        for target in targets or ():
            if any(f".{name}".endswith(f".{target}") for name in tied):
                raise ModelError(
                    f"model.lora.targets: {target} shares its weights with "
                    f"{' and '.join(n for n in tied if not n.endswith(target))}, so an adapter on "
                    "it cannot be merged or reloaded; remove it, or train all weights "
                    "(model.lora.rank=0)"
                )
    kinds = (torch.nn.Linear, Conv1D)
    linear = {n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, kinds)}
    try:
        model.add_adapter(config)
    except ValueError as error:
        if targets and not linear.intersection(t.rpartition(".")[2] for t in targets):
            raise ModelError(
                f"model.lora.targets: {', '.join(targets)} matches no layer; the linear layers "
                f"are {', '.join(sorted(linear))}"
            ) from None
        raise ModelError(f"model.lora: {said_by(error)}") from None
    # peft drew A by the process's generator, which other threads draw by as well.
    draw = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name)
        if "lora_" in name:
            # A small step would vanish in half precision.
            weight.data = weight.data.to(torch.promote_types(weight.dtype, torch.float32))
        if "lora_A." in name:  # as peft does
            torch.nn.init.kaiming_uniform_(weight.data, a=math.sqrt(5), generator=draw)
        elif "lora_embedding_B." in name:
            torch.nn.init.normal_(weight.data, generator=draw)
