"""Chooses the number of CPU threads for a model."""

import os
from typing import Any

import torch

from rlzoo.format.numbers import count

FEW = 5_000_000  # parameters below which a second thread waits more than it works: docs/speed.md

_ALL = torch.get_num_threads()  # torch's choice, by cores or OMP_NUM_THREADS


def choose(wanted: int | None, model: Any) -> None:
    """Set the number of torch's CPU threads to `wanted`, or by the model's size.

    A second thread starts too late for a small model's short operations; on busy cores, waiting
    for it costs several times the work. OMP_NUM_THREADS takes precedence.
    """
    by_hand = "OMP_NUM_THREADS" in os.environ
    small = next(model.parameters()).device.type == "cpu" and model.num_parameters() < FEW
    torch.set_num_threads(wanted or (1 if small and not by_hand else _ALL))


def told(model: Any) -> str:
    """`501 k parameters, 1 CPU thread`"""
    n = torch.get_num_threads()
    return f"{count(model.num_parameters())} parameters, {n} CPU thread{'s' * (n > 1)}"
