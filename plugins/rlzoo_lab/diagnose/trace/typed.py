"""A trace of typed numbers, without a model."""

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlzoo.errors import UsageError
from rlzoo.mdp.batch import Batch
from rlzoo.ops import less_penalty, masked_sum
from rlzoo.plugin.columns import COLUMNS
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo.recipe.words import split_values
from rlzoo_lab.diagnose.trace.make import make_trace
from rlzoo_lab.diagnose.trace.trace import TYPED, Trace


def of_numbers(typed: Mapping[str, str], recipes: Sequence[Recipe], zoo: Zoo, *, row: int) -> Trace:
    """A trace from typed columns, name -> text; `;` separates rows. Computes in float64.

    `scores` without `rewards`: the rewards are the scores. If the recipe puts KL in the reward,
    they are the scores minus kl.coef times `kl`, or times the recipe's penalty on old_log_probs and
    ref_log_probs.
    """
    typed = dict(typed)
    texts = typed.pop("tokens", None)
    leader = next(name for name in ("rewards", "scores", "advantages") if name in typed)
    lengths = [len(row) for row in _read(leader, typed[leader])]
    known: dict[str, Any] = {**COLUMNS, **zoo.columns}
    shapes = {n: known[n].shape if n in known else "BT" for n in typed}
    columns = {n: _column(n, x, shapes[n], lengths, leader) for n, x in typed.items()}
    tokens = None if texts is None else _tokens(texts, lengths, leader)
    mask = _padded([[1.0] * n for n in lengths]) * columns.pop("response_mask", 1)
    for name in columns.keys() & {"group_ids", "prompt_index"}:
        columns[name] = columns[name].long()
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    kl, coef = columns.pop("kl", None), None
    if leader == "scores":
        columns["rewards"], coef = _less_kl(plans[0], columns, kl, mask)
    zeros = mask.new_zeros(len(mask))
    if "rewards" in columns:
        columns.setdefault("scores", columns["rewards"])
        columns.setdefault("sequence_scores", masked_sum(columns["scores"], mask))
        columns.setdefault("sequence_rewards", masked_sum(columns["rewards"], mask))
    columns.setdefault("group_ids", zeros.long())
    columns.setdefault("bootstrap_values", zeros)
    columns["truncated"] = columns.get("truncated", columns["bootstrap_values"]) != 0
    columns["terminated"] = ~columns["truncated"]
    batch = Batch(mask)
    for name, x in columns.items():
        batch.add(name, x, shapes.get(name))
    flags = {"bootstrap_values": "--bootstrap V", "values": "--values V,V,..."}
    for plan in plans if "advantages" not in columns else ():
        for need in plan.estimator.needs:
            if need not in batch:
                flag = flags.get(need, f"--{need} ...")
                raise UsageError(f"estimator {plan.estimator.name!r} needs {need!r}: give {flag}")
    words = tokens[row] if tokens and 0 <= row < len(tokens) else None
    return make_trace(TYPED, batch, plans, row, kl_coef=coef, texts=words, kl=kl)


def _less_kl(
    plan: Plan, columns: Mapping[str, Tensor], kl: Tensor | None, mask: Tensor
) -> tuple[Tensor, float | None]:
    """The rewards of scores, and the coefficient by which KL was taken off; None if none was."""
    config, scores = plan.recipe.config.kl, columns["scores"]
    if plan.kl is None or config.place != "reward":
        return scores, None
    if kl is None:
        given = {**columns, "response_mask": mask, "log_probs": columns.get("old_log_probs")}
        if any(given.get(name) is None for name in plan.kl.needs):
            return scores, None
        kl = plan.kl(given)
    return less_penalty(scores, kl, mask, coef=config.coef, spread=config.spread), config.coef


PLAIN = re.compile(r"[-+.0-9eE]+")  # a finite number as training has it: no nan, inf or 1_000


def _read(name: str, typed: str) -> list[list[float]]:
    """Numbers at commas, rows at semicolons; brackets around either, as Python has them, are left
    out."""
    rows: list[list[float]] = []
    for line in typed.replace("],", ";").translate(dict.fromkeys(map(ord, "[]"))).split(";"):
        rows.append([])
        for word in split_values(line):
            try:
                if not PLAIN.fullmatch(word.strip()):
                    raise ValueError
                rows[-1].append(float(word))
            except ValueError:
                commas = ",".join(word.split())
                hint = f"; separate numbers by commas: {commas}" if " " in word else ""
                fault = f"--{name}: {word!r} is not a number (got {typed!r}){hint}"
                raise UsageError(fault) from None
    return rows


def _tokens(typed: str, lengths: list[int], leader: str) -> list[list[str]]:
    """The texts of each row's tokens: at commas, but for those inside double quotes."""
    rows = [next(csv.reader([line]), []) for line in typed.split(";")]
    _check_lengths("tokens", [len(row) for row in rows], lengths, leader)
    return rows


def _column(name: str, typed: str, shape: str, lengths: list[int], leader: str) -> Tensor:
    """A typed column, (B, T) as long as the leader, or (B,) with a number for each row."""
    wide = shape == "BT"
    rows = _read(name, typed if wide else typed.replace(",", ";"))
    wanted = lengths if wide else [1] * len(lengths)
    _check_lengths(name, [len(row) for row in rows], wanted, leader)
    most = max((x for row in rows for x in row), default=0.0)
    if name.endswith("log_probs") and most > 0:
        raise UsageError(
            f"--{name.replace('_', '-')}: a log-probability is at most 0. Got {most:g}"
        )
    return _padded(rows) if wide else _padded(rows)[:, 0]


def _check_lengths(name: str, there: list[int], wanted: list[int], leader: str) -> None:
    name, leader = (n.replace("bootstrap_values", "bootstrap") for n in (name, leader))
    if len(there) != len(wanted):
        raise UsageError(
            f"--{name} has {len(there)} row{'s' * (len(there) != 1)}, --{leader} {len(wanted)}; "
            "separate rows by `;`"
        )
    for row, (got, want) in enumerate(zip(there, wanted, strict=True)):
        if got != want:
            where = f"in row {row} " if len(wanted) > 1 else ""
            raise UsageError(
                f"--{name} {where}has length {got} but --{leader} has length {want}; give one "
                "value per token"
            )


def _padded(rows: list[list[float]]) -> Tensor:
    return pad_sequence([torch.tensor(r, dtype=torch.float64) for r in rows], batch_first=True)
