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
    given = {name: _column(name, text, lengths) for name, text in typed.items()}
    mask = _padded([[1.0] * n for n in lengths]) * given.pop("response_mask", 1)
    for name in given.keys() & {"group_ids", "prompt_index"}:
        given[name] = given[name].long()
    zeros = mask.new_zeros(len(mask))
    given.setdefault("scores", given["rewards"])
    given.setdefault("sequence_scores", masked_sum(given["scores"], mask))
    given.setdefault("sequence_rewards", masked_sum(given["rewards"], mask))
    given.setdefault("group_ids", zeros.long())
    given.setdefault("bootstrap_values", zeros)
    given["truncated"] = given.get("truncated", given["bootstrap_values"]) != 0
    given["terminated"] = ~given["truncated"]
    batch = Batch(mask)
    batch.update(given)
    flags = {"bootstrap_values": "--bootstrap V", "values": "--values V,V,..."}
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    for plan in plans:
        for need in plan.estimator.needs:
            if need not in batch:
                flag = flags.get(need, f"--{need} ...")
                raise UsageError(f"estimator {plan.estimator.name!r} needs {need!r}: give {flag}")
    return make_trace("typed numbers", batch, plans, row, kl_coef=None)


def _read(name: str, text: str) -> list[list[float]]:
    rows = []
    for part in text.split(";"):
        row = []
        for word in split_values(part):
            try:
                row.append(float(word))
            except ValueError:
                raise UsageError(f"--{name}: {word!r} is no number (got {text!r})") from None
        rows.append(row)
    return rows


def _column(name: str, text: str, lengths: list[int]) -> Tensor:
    """A typed column, (B, T) as long as the rewards, or (B,) with a number for each row."""
    wide = COLUMNS[name].shape == "BT"
    rows = _read(name, text if wide else text.replace(",", ";"))
    there, wanted = [len(row) for row in rows], lengths if wide else [1] * len(lengths)
    if there != wanted:
        got, want = (" ; ".join(map(str, n)) for n in (there, wanted))
        raise UsageError(f"--{name}: --rewards asks for as many numbers as {want}. Got {got}")
    return _padded(rows) if wide else _padded(rows)[:, 0]


def _padded(rows: list[list[float]]) -> Tensor:
    return pad_sequence([torch.tensor(r, dtype=torch.float64) for r in rows], batch_first=True)
