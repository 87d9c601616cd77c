"""Where a model computes: the device that `auto`, cpu or cuda:1 stands for, and the number of CPU
threads."""

import os
from typing import Any

import torch

from rlzoo.errors import RlzooError

FEW = 5_000_000  # parameters below which a second thread waits more than it works: docs/speed.md

_ALL = torch.get_num_threads()  # torch's choice, by cores or OMP_NUM_THREADS


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
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        which = f"only {there} found" if there else "none was found"
        raise RlzooError(f"{key}: {name!r} requires a CUDA device, but {which}")
    if device.type not in ("cpu", "cuda"):
        try:
            torch.zeros(1, device=device).item()
        except (RuntimeError, AssertionError):
            raise RlzooError(f"{key}: {name!r} is not available; use auto, cpu or cuda") from None
    return device


def choose_threads(wanted: int | None, model: Any) -> None:
    """Set the number of torch's CPU threads to `wanted`, or by the model's size.

    A second thread starts too late for a small model's short operations; on busy cores, waiting
    for it costs several times the work. OMP_NUM_THREADS takes precedence.
    """
    by_hand = "OMP_NUM_THREADS" in os.environ
    small = next(model.parameters()).device.type == "cpu" and model.num_parameters() < FEW
    torch.set_num_threads(wanted or (1 if small and not by_hand else _ALL))
