"""The device that `auto`, cpu, cuda or cuda:1 stands for."""

import os

import torch

from rlzoo.errors import RlzooError


def pick_device(name: str, key: str = "device") -> torch.device:
    """`auto` is CUDA if available, otherwise the CPU; each process has its own device.

    key: named in errors."""
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RlzooError(
            f"{key}: {name!r} is not a device; use auto, cpu, cuda or cuda:0"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RlzooError(f"{key}: {name!r} requires a CUDA device, but none was found")
    return device
