"""The responses that a run saves: batches with every number, and samples with their texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo.errors import first_line
from rlzoo.runs.disk import read_json
from rlzoo.runs.folder import RunFolder, saved_steps, step_of

SHOWN = 4  # samples of a step
STEPS = 4  # saved batches on a page, the last of them
EPS = np.finfo(np.float32).eps


@dataclass
class Saved:
    """A saved batch. columns: arrays (B, ...) by name; texts: lists (B,) by name; tokens: the text
    of each token by its id."""

    step: int
    columns: Mapping[str, Any]
    texts: Mapping[str, list[Any]]
    tokens: Mapping[int, str]

    @property
    def rows(self) -> int:
        return len(self.columns["response_mask"])

    def text(self, name: str, row: int) -> str | None:
        """`prompts`, `responses` or `answers` of a row; None if the batch does not have them."""
        return str(self.texts[name][row]) if name in self.texts else None

    def score(self, row: int) -> float:
        return float(self.columns["sequence_scores"][row])

    def length(self, row: int) -> int:
        """The number of tokens in the response, including those that the policy did not choose."""
        seen = np.nonzero(self.columns["response_attention"][row])[0]
        return int(seen[-1]) + 1 if len(seen) else 0

    def advantage(self, row: int) -> float:
        """The mean over tokens that the policy chose; 0 if it chose none."""
        chosen = self.columns["response_mask"][row] > 0
        return float(self.columns["advantages"][row][chosen].mean()) if chosen.any() else 0.0

    def groups(self) -> list[list[int]]:
        """The rows of each group, in the order of the batch."""
        groups: dict[int, list[int]] = {}
        for row, group in enumerate(self.columns["group_ids"].tolist()):
            groups.setdefault(group, []).append(row)
        return list(groups.values())

    def flat(self, rows: Sequence[int]) -> bool:
        """Whether all responses of a group have the same score, up to rounding, and so carry no
        signal. A single response is never flat."""
        scores = self.columns["sequence_scores"][list(rows)].astype(float)
        size = max(1.0, float(np.abs(scores).max()))
        return len(rows) > 1 and bool(scores.max() - scores.min() <= 4 * EPS * size)


FINITE = ("sequence_scores", "advantages")
NEEDED = ("response_mask", "response_attention", "response_ids", "group_ids", *FINITE)
USED = {*NEEDED, "raw_advantages", "rewards", "values", "returns", "log_probs",
        "old_log_probs", "ref_log_probs", "sampler_log_probs", "entropy", "old_entropy",
        "truncated"}  # fmt: skip


def read_batches(folder: RunFolder, troubles: list[str]) -> Iterator[Saved]:
    """The last saved batches, newest first, read one at a time because each may be large.
    `troubles` receives a message for each batch that cannot be read."""
    for path in reversed(saved_steps(folder.path / "batches", ".safetensors")[-STEPS:]):
        try:
            yield _read(path)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            troubles.append(f"batches/{path.name} cannot be read: {first_line(error)}")


def _read(path: Path) -> Saved:
    from safetensors import SafetensorError, safe_open  # here: few commands read such files

    try:
        with safe_open(path, "np") as file:
            columns = {name: file.get_tensor(name) for name in file.keys() if name in USED}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    rows = len(columns["response_mask"])
    for name in NEEDED:
        if len(columns[name]) != rows:
            raise ValueError(f"{name} has {len(columns[name])} rows instead of {rows}")
    for name in FINITE:
        if not np.isfinite(columns[name]).all():
            raise ValueError(f"{name} is not finite")
    found = read_json(path.with_suffix(".json"))
    tokens = {int(i): str(text) for i, text in found.pop("token_texts", {}).items()}
    texts = {n: x for n, x in found.items() if isinstance(x, list) and len(x) == rows}
    return Saved(step_of(path), columns, texts, tokens)


def read_samples(folder: RunFolder, steps: int = 12) -> dict[int, list[dict[str, Any]]]:
    """Some samples of some steps spread over the run, including the last."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for line in folder.lines("samples.jsonl"):
        if line["step"] not in by_step and len(by_step) == 16 * steps:
            for step in list(by_step)[1::2]:  # a long run's are not held all at once
                del by_step[step]
        if len(some := by_step.setdefault(line["step"], [])) < SHOWN:
            some.append(line)
    there = list(by_step)
    every = (len(there) - 1) / max(1, steps - 1)
    picked = there if len(there) <= steps else [there[round(i * every)] for i in range(steps)]
    return {step: by_step[step] for step in picked}
