"""Batches that a run saved (`run.save_batches`), read as tensors."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from rlzoo.errors import RunError, first_line
from rlzoo.plugin.columns import COLUMNS
from rlzoo.runs.disk import read_json
from rlzoo.runs.folder import saved_steps


def saved_batches(path: Path) -> list[Path]:
    """The batches that the run in `path` saved, oldest first."""
    return saved_steps(path / "batches", ".safetensors")


def read_batch(file: Path) -> dict[str, Any]:
    """The columns of a saved batch; raises RunError if the batch is damaged."""
    try:
        tensors = load_file(file)
        texts = dict(read_json(file.with_suffix(".json")))
        if tensors["response_mask"].dim() != 2:
            raise ValueError("its response_mask does not have shape (B, T)")
        rows = len(tensors["response_mask"])
        columns = {"response_mask": tensors["response_mask"], **texts, **tensors}
        for name, column in columns.items():
            of_rows = name not in COLUMNS or COLUMNS[name].shape != "K"
            if of_rows and isinstance(column, list | torch.Tensor) and len(column) != rows:
                raise ValueError(f"{name} has {len(column)} entries for {rows} rows")
        return columns
    except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
        raise RunError(f"{file} cannot be read: {first_line(error)}") from None
