"""A trace of numbers that were typed, without a model."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlzoo.errors import UsageError
from rlzoo.mdp.batch import Batch
from rlzoo.ops import masked_sum
from rlzoo.plugin.columns import COLUMNS
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.plan import make_plan
from rlzoo.recipe.words import split_values
from rlzoo.tools.trace.make import make_trace
from rlzoo.tools.trace.trace import Trace


def of_numbers(typed: Mapping[str, str], recipes: Sequence[Recipe], zoo: Zoo, *, row: int) -> Trace:
    """From typed columns, name -> text; rows are separated by `;`. Float64."""
    lengths = [len(row) for row in _read("rewards", typed["rewards"])]
    columns = {name: _column(name, numbers, lengths) for name, numbers in typed.items()}
    mask = _padded([[1.0] * n for n in lengths]) * columns.pop("response_mask", 1)
    for name in columns.keys() & {"group_ids", "prompt_index"}:
        columns[name] = columns[name].long()
    zeros = mask.new_zeros(len(mask))
    columns.setdefault("scores", columns["rewards"])
    columns.setdefault("sequence_scores", masked_sum(columns["scores"], mask))
    columns.setdefault("sequence_rewards", masked_sum(columns["rewards"], mask))
    columns.setdefault("group_ids", zeros.long())
    columns.setdefault("bootstrap_values", zeros)
    columns["truncated"] = columns.get("truncated", columns["bootstrap_values"]) != 0
    columns["terminated"] = ~columns["truncated"]
    batch = Batch(mask)
    batch.update(columns)
    flags = {"bootstrap_values": "--bootstrap V", "values": "--values V,V,..."}
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    for plan in plans:
        for need in plan.estimator.needs:
            if need not in batch:
                flag = flags.get(need, f"--{need} ...")
                raise UsageError(f"estimator {plan.estimator.name!r} needs {need!r}: give {flag}")
    return make_trace("typed numbers", batch, plans, row, kl_coef=None)


def _read(name: str, typed: str) -> list[list[float]]:
    rows: list[list[float]] = []
    for line in typed.split(";"):
        rows.append([])
        for word in split_values(line):
            try:
                rows[-1].append(float(word))
            except ValueError:
                raise UsageError(f"--{name}: {word!r} is no number (got {typed!r})") from None
    return rows


def _column(name: str, typed: str, lengths: list[int]) -> Tensor:
    """A typed column, (B, T) as long as the rewards, or (B,) with a number for each row."""
    wide = COLUMNS[name].shape == "BT"
    rows = _read(name, typed if wide else typed.replace(",", ";"))
    there, wanted = [len(row) for row in rows], lengths if wide else [1] * len(lengths)
    if there != wanted:
        got, want = (" ; ".join(map(str, n)) for n in (there, wanted))
        raise UsageError(f"--{name}: --rewards asks for as many numbers as {want}. Got {got}")
    return _padded(rows) if wide else _padded(rows)[:, 0]


def _padded(rows: list[list[float]]) -> Tensor:
    return pad_sequence([torch.tensor(r, dtype=torch.float64) for r in rows], batch_first=True)
