"""A trace of numbers that were typed, without a model."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rlzoo.errors import TraceError
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
    rewards = _typed_rows("rewards", typed["rewards"])
    steps = max(map(len, rewards))
    mask = _padded([[1.0] * len(r) for r in rewards], steps)
    if "response_mask" in typed:
        mask = mask * _padded(_typed("response_mask", typed, rewards), steps)
    batch = Batch(mask)
    given: dict[str, Tensor] = {}
    for name in typed:
        if name == "response_mask":
            continue
        numbers = _typed(name, typed, rewards)
        if COLUMNS[name].shape == "BT":
            given[name] = _padded(numbers, steps)
        else:
            given[name] = torch.tensor([r[0] for r in numbers], dtype=torch.float64)
        if name in ("group_ids", "prompt_index"):
            given[name] = given[name].long()
    zeros = mask.new_zeros(len(mask))
    given.setdefault("scores", given["rewards"])
    given.setdefault("sequence_scores", masked_sum(given["scores"], mask))
    given.setdefault("sequence_rewards", masked_sum(given["rewards"], mask))
    given.setdefault("group_ids", zeros.long())
    given.setdefault("bootstrap_values", zeros)
    if "truncated" not in given:
        given["truncated"] = given["bootstrap_values"] != 0
    given["terminated"] = given["truncated"] == 0
    given["truncated"] = given["truncated"].bool()
    for name, value in given.items():
        batch.add(name, value)
    flags = {"bootstrap_values": "--bootstrap V", "values": "--values V,V,..."}
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    for plan in plans:
        for need in plan.estimator.needs:
            if need not in batch:
                flag = flags.get(need, f"--{need} ...")
                raise TraceError(f"estimator {plan.estimator.name!r} needs {need!r}: give {flag}")
    return make_trace("typed numbers", batch, plans, row, kl_coef=None)


def _typed_rows(name: str, text: str) -> list[list[float]]:
    rows = []
    for part in text.split(";"):
        row = []
        for word in split_values(part):
            try:
                row.append(float(word))
            except ValueError:
                raise TraceError(f"--{name}: {word!r} is no number (got {text!r})") from None
        rows.append(row)
    return rows


def _typed(name: str, typed: Mapping[str, str], like: list[list[float]]) -> list[list[float]]:
    """The rows of a typed column, as long as those of the rewards; a number each for a (B,) one."""
    text = typed[name]
    if COLUMNS[name].shape == "B":
        text = text.replace(",", ";")
    rows = _typed_rows(name, text)
    wanted = [1 if COLUMNS[name].shape == "B" else len(r) for r in like]
    if [len(r) for r in rows] != wanted:
        got, want = (" ; ".join(map(str, n)) for n in ([len(r) for r in rows], wanted))
        raise TraceError(f"--{name}: --rewards asks for as many numbers as {want}. Got {got}")
    return rows


def _padded(rows: list[list[float]], steps: int) -> Tensor:
    return torch.tensor([r + [0.0] * (steps - len(r)) for r in rows], dtype=torch.float64)
